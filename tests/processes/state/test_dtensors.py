# SPDX-License-Identifier: Apache-2.0
"""DTensor and DeviceMesh, there and back."""

import pytest
from launch import run


@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.on_the_cpu("local shards are copies there")
def test_there_and_back_without_a_copy(processes):
    for said in run("dtensors.py", processes):
        assert said.splitlines() == [
            "the placement P(sum) of axis 'a' does not fit a tensor of rank 1",
            "a Tensor was given",
        ]
