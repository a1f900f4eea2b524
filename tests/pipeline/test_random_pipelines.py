# SPDX-License-Identifier: Apache-2.0
"""Random programs with stages and microbatches give what plain PyTorch gives on the CPU."""

import pytest
from messages import eight_devices
from random_pipelines import check

eight_devices()


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_pipelines(first):
    for seed in range(first, first + 20):
        check(seed)
