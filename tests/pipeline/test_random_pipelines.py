# SPDX-License-Identifier: Apache-2.0
"""Random programs with stages and microbatches give what plain PyTorch gives on the CPU."""

import pytest
import spmdx
from random_pipelines import check

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_pipelines(first):
    for seed in range(first, first + 20):
        check(seed)
