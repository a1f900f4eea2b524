# SPDX-License-Identifier: Apache-2.0
"""Strides of a fixed share of torch's ops equal eager's; `make conformance` asks all."""

import layout_oracle
import pytest
import torch
from exceptions import reason_for
from settings import EVEN, UNEVEN, Setting

pytestmark = pytest.mark.on_the_cpu("kernels of GPUs lay results in other ways")

# Eager's own kernels take seconds for one gradient.
SLOW = {"grid_sampler_3d", "grid_sampler_2d", "nn.functional.grid_sample"}
OPS = [
    op
    for op in layout_oracle.entries()
    if not (
        reason_for("layouts", layout_oracle.name_of(op), "f32") or layout_oracle.name_of(op) in SLOW
    )
][::2]
SHARE = 8  # parts, each of every eighth entry
FEW = {"even": Setting((1,), EVEN, 2), "uneven": Setting((1,), UNEVEN, 2)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(SHARE))
@pytest.mark.parametrize("dtype", [torch.float32], ids=str)
def test_results_and_gradients_lie_as_eager_lays_them(at, dtype):
    for number, op in enumerate(OPS[at::SHARE]):
        verdict = layout_oracle.judge(op, list(FEW.values())[number % 2], dtype=dtype)
        assert not verdict.trouble, verdict.op + ": " + "\n".join(verdict.trouble[:5])
