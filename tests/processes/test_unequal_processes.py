# SPDX-License-Identifier: Apache-2.0
"""Processes that are not equally fast: what they can do is measured, and work is theirs by it."""

import json

import pytest
from launch import run


def shares_of(processes, *speeds):
    first, *others = map(json.loads, run("unequal.py", processes, 1, *map(str, speeds)))
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize("speeds", [(1, 2), (4, 1), (1, 1, 2), (3, 1, 2, 2)])
def test_work_is_in_the_ratio_of_speeds(speeds):
    for (done, speed), told in zip(shares_of(len(speeds), *speeds), speeds, strict=True):
        assert speed == pytest.approx(told / sum(speeds), rel=0.05)
        assert done == pytest.approx(speed, rel=0.1)


def test_work_is_in_the_ratio_of_measured_speeds():
    for done, speed in shares_of(2):
        assert done == pytest.approx(speed, rel=0.1)
