# SPDX-License-Identifier: Apache-2.0
"""Training in many processes equals training in plain PyTorch, on any mesh."""

import functools
import re

import pytest
from launch import run

CASES = [  # mode, batch, processes, devices of each
    ("data", 7, 2, 1),
    ("fsdp", 8, 2, 1),
    ("tensor", 5, 2, 1),
    ("reversed", 5, 2, 1),
    ("fsdp", 7, 4, 1),
    ("both", 6, 4, 1),
    ("data", 9, 2, 4),
    ("both", 7, 2, 4),
    ("tensor", 4, 2, 4),
    ("both", 8, 3, 2),
]


def random_of(line: str) -> str:
    return re.search(r"random (\w+)", line)[1]


@functools.cache
def drawn_by_one_device(batch: int) -> str:
    """The hash of the random numbers that one device in one process draws."""
    (line,) = run("train.py", 1, 1, "data", str(batch))
    return random_of(line)


@pytest.mark.parametrize("mode, batch, processes, devices", CASES)
def test_losses_parameters_and_random_numbers_are_those_of_one_process(
    mode, batch, processes, devices
):
    said = run("train.py", processes, devices, mode, str(batch))
    for rank, line in enumerate(said):
        assert f"process {rank} of {processes}; {devices} of {processes * devices} devices" in line
        assert random_of(line) == drawn_by_one_device(batch)
