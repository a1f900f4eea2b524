# SPDX-License-Identifier: Apache-2.0
"""Microbatches that are alike are planned once; benchmarks/planning_microbatches.py counts it."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from planning_microbatches import LOOPS, OPT, counts, run  # noqa: E402

PROGRAM = Path(__file__).parent / "planned_loop.py"


@pytest.mark.parametrize("loop", LOOPS)
def test_the_search_for_64_microbatches_takes_less_than_twice_that_for_two(loop):
    few, many = counts(2, loop, False), counts(64, loop, False)
    assert few[0] == 2 and many[0] == 3
    assert many[1] < 2 * few[1], (few, many)


def traced(folder, stages, data, way):
    """The largest trace of the program, as a file."""
    settings = os.environ | {"SPMDX_DUMP": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, PROGRAM, str(stages), str(data), way]
    subprocess.run(command, env=settings, check=True, stdout=subprocess.DEVNULL)
    return max(folder.glob("*-00-traced.txt"), key=lambda path: path.stat().st_size)


def planned(path, whole):
    """Lines of the plan without the numbers of values, in any order."""
    names = [name for name in run(OPT, "--passes").stdout.split() if not (whole and name == "roll")]
    passes = itertools.chain.from_iterable(("--pass", name) for name in names)
    return sorted(re.sub(r"%\d+", "%", run(OPT, *passes, path).stdout).splitlines())


@pytest.mark.parametrize("way", ["chunks", "slices"])
@pytest.mark.parametrize("stages, data", [(2, 1), (2, 2), (3, 2), (4, 1), (4, 2)])
def test_a_plan_is_the_same_as_if_all_were_planned_one_by_one(stages, data, way, tmp_path):
    path = traced(tmp_path, stages, data, way)
    assert "repeat phase 3" in run(OPT, "--pass", "roll", path).stdout
    assert planned(path, whole=False) == planned(path, whole=True)
