# SPDX-License-Identifier: Apache-2.0
"""Random programs, then the same lines over other sizes: what is decided like the first one's plan
equals plain PyTorch, and moves about as much as what is searched for.

python tests/python/programs/test_resized_programs.py 0 5000      # the programs of these seeds
"""

import collections
import os
import sys
from pathlib import Path

import pytest
import spmdx

HELPERS = Path(__file__).parents[1] / "helpers"
sys.path[:0] = [str(HELPERS), str(HELPERS / "program")]  # pytest has them; a script does not
from program_oracle import difference, judge, run  # noqa: E402
from random_programs import draft  # noqa: E402
from resized_programs import resized  # noqa: E402

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

A_TEST = 50
PROGRAMS = int(os.environ.get("RANDOM_PROGRAMS", "500"))  # `--count N`
MORE = 1.1  # times the bytes of a plan that is searched for


def moved(program, want):
    """(what is wrong, counters) of a run."""
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    said, _ = difference(program, want)
    return said, spmdx.debug.counters()


def compared(seed):
    """What comes of a program and of the same with other sizes; None where there are none."""
    first = draft(seed)
    other = resized(first, seed)
    if other is None:
        return None
    want = run(other, "cpu")
    spmdx._C.clear_cache()
    difference(first)
    said, follows = moved(other, want)
    verdict = "equal"
    if said is not None:
        spmdx._C.clear_cache()
        difference(first)
        verdict, said = judge(other)
    spmdx._C.clear_cache()
    alone, searches = moved(other, want)
    # What is different by itself is for the tests of programs that follow none.
    assert verdict != "different" or said == alone, f"seed {seed}: {said}\n\n{other.text()}"
    return follows, searches


def counted(seeds):
    """Sums over programs, and of how many that followed moved more or less than those searched."""
    sums = collections.Counter()
    for seed in seeds:
        both = compared(seed)
        if both is None:
            sums["without"] += 1
            continue
        follows, searches = both
        sums["programs"] += 1
        sums["followed"] += follows["plans_searched"] < searches["plans_searched"]
        for name, counters in (("bytes", follows), ("bytes searched", searches)):
            sums[name] += counters["wire_bytes"]
        sums["more"] += follows["wire_bytes"] > MORE * searches["wire_bytes"]
        sums["less"] += searches["wire_bytes"] > MORE * follows["wire_bytes"]
    return sums


@pytest.fixture
def poison():
    spmdx._C.set_checks(poison=True)
    yield
    spmdx._C.set_checks()


@pytest.mark.parametrize("first", range(0, PROGRAMS, A_TEST))
def test_programs_of_other_sizes_equal_unsharded_ones(first, poison):
    sums = counted(range(first, min(first + A_TEST, PROGRAMS)))
    assert sums["followed"] >= A_TEST // 6, sums
    # Of so few programs of a few bytes, one may move as much as all others: of 5,000 together it is
    # within 1.1 times.
    assert sums["bytes"] <= 1.3 * sums["bytes searched"], sums
    assert sums["more"] <= A_TEST // 10, sums


if __name__ == "__main__":
    print(dict(counted(range(int(sys.argv[1]), int(sys.argv[2])))))
