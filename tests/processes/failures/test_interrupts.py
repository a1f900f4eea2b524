# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends any wait within a second; what was recorded stays, the others are told."""

import re

import pytest
from launch import Running, run

SECONDS = 2.0  # of which one is the machine's
STEPS = ("item", "cpu", "sync", "mark_step", "shards")


def seconds(said: str) -> float:
    return float(re.search(r"after (\S+) seconds", said)[1])


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", STEPS)
def test_an_interrupted_wait_leaves_everything_as_it_is(kind, processes):
    said = run("interrupts.py", processes, 1, kind, SPMDX_TIMEOUT=60)
    assert seconds(said[0]) < SECONDS, said[0]
    assert all(one.endswith("well\n") for one in said)


@pytest.mark.parametrize("kind", ["item", "mark_step", "exchange"])
def test_the_others_are_told_of_a_process_that_an_interrupt_ends(kind):
    with Running("interrupts.py", 2, 1, kind, "ends", SPMDX_TIMEOUT=60) as running:
        first, second = running.end(40)
    assert first.status != 0 and "KeyboardInterrupt" in first.err and seconds(first.out) < SECONDS
    assert second.status == 0, second.err
    assert re.search(r"told: interrupts.py:\d+: .*has ended after \d+ steps: Keyb", second.out)


def test_processes_that_meet_are_interrupted():
    with Running("interrupts.py", 2, 1, "rendezvous", SPMDX_TIMEOUT=20) as running:
        first, second = running.end(60)
    assert first.status != 0 and "KeyboardInterrupt" in first.err and seconds(first.out) < SECONDS
    assert second.status == 1 and "CommError: " in second.err, second.err
