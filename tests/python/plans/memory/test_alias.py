# SPDX-License-Identifier: Apache-2.0
"""Random programs of views and in-place writes give on the device what they give on the CPU."""

import os

import pytest
import spmdx
from aliases import run_program

# Programs in all (`--count N`); a failing program's seed is printed, `ALIAS_SEED=n` runs it alone.
COUNT = int(os.environ.get("RANDOM_PROGRAMS", "2000"))
CHUNKS = 20
MOVES = 3  # how often a program takes its parts, each time at other places


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs_of_views_and_writes_equal_the_cpu(chunk):
    alone = os.environ.get("ALIAS_SEED")
    per_chunk = max(1, COUNT // CHUNKS)
    seeds = [int(alone)] if alone else range(chunk * per_chunk, (chunk + 1) * per_chunk)
    failed = {}
    spmdx.sync(wait=True)
    spmdx._C.set_checks(poison=chunk % 2 == 1)
    for seed in seeds:
        for moved in range(MOVES):
            try:
                difference = run_program(seed, moved)
            except Exception as error:  # noqa: BLE001 - the report names the seed
                difference = f"{type(error).__name__}: {error}"
            if difference:
                failed.setdefault(seed, difference)
    spmdx._C.set_checks()
    seed = next(iter(failed), None)
    assert not failed, f"seeds {sorted(failed)} differ; seed {seed}: {failed[seed]}"


def test_programs_that_are_moved_find_the_plans_of_the_first():
    """Else the test above would not see a plan at other places than those that it was made for."""
    spmdx.sync(wait=True)
    compiled = []
    for moved in range(2):
        spmdx.debug.reset_counters()
        assert [run_program(seed, moved) for seed in range(50)] == [None] * 50
        spmdx.sync(wait=True)
        compiled.append(spmdx.debug.counters()["plans_compiled"])
    assert compiled[0] > 50 and compiled[1] < compiled[0] / 5
