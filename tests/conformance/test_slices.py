# SPDX-License-Identifier: Apache-2.0
"""Kernels of a share of torch's ops read slices as they read whole tensors, or are listed."""

import pytest
import slice_oracle
from exceptions import reason_for
from settings import EVEN, UNEVEN, Setting

OPS = [
    op for op in slice_oracle.entries() if not reason_for("slices", slice_oracle.name_of(op), "f32")
][::4]
SHARE = 4  # parts, each of every fourth entry
FEW = [Setting((1,), EVEN, 2), Setting((1,), UNEVEN, 2)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(SHARE))
def test_kernels_read_slices(at):
    runs = 0
    for number, op in enumerate(OPS[at::SHARE]):
        verdict = slice_oracle.judge(op, FEW[number % 2])
        assert not verdict.trouble, verdict.op + ": " + "\n".join(verdict.trouble[:5])
        runs += verdict.runs
    assert runs > 300
