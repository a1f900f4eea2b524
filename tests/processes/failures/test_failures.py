# SPDX-License-Identifier: Apache-2.0
"""One process gets into trouble: the others name it, and nobody waits for ever."""

import os
import re
import signal

import pytest
from hardware import ON_GPU, WRONG_INDICES
from launch import Running, run

LIMIT = 120  # seconds after which a process hangs
IN_VAIN = ("stopped", "stalls")  # what only a limit of time tells; it must leave time to start, too

# What the others say of process 1.
SAID = {
    "killed": r"process 1 \(pid \d+\) has died",
    "quits": r"process 1 \(pid \d+\) has died",
    "raises": r"process 1 \(pid \d+\) has ended after 3 steps: ValueError: the loss of process 1",
    "exits": r"process 1 \(pid \d+\) has ended after 3 steps: its program came to its end",
    "interrupted": r"process 1 \(pid \d+\) has ended after 3 steps: KeyboardInterrupt",
    "stopped": r"process 1 \(pid \d+\) is stopped",
    "stalls": r"process \d has waited for 15 seconds, in step 3.*process 1 \(pid \d+\) is in",
    "index": r"process 1 \(pid \d+\) failed in step 3 at fail.py:\d+: aten\.\S+: .*out of range",
}


@pytest.mark.parametrize(
    "kind, processes", [*((kind, 2) for kind in SAID), ("killed", 4), ("index", 3)]
)
def test_the_others_name_the_process_in_trouble(kind, processes):
    if ON_GPU and kind == "index":
        pytest.skip(WRONG_INDICES)
    limit = 15 if kind in IN_VAIN else LIMIT
    with Running("fail.py", processes, 1, kind, SPMDX_TIMEOUT=limit) as running:
        others = [rank for rank in range(processes) if rank != 1]
        for rank in others:
            running.children[rank].wait(LIMIT)
        ended = running.end(0 if kind in IN_VAIN else LIMIT)
    for rank in others:
        how = ended[rank]
        assert how.status not in (0, None), how.out + how.err
        assert re.search(r"CommError: fail.py:\d+: .*" + SAID[kind], how.out), how.out
    if kind == "index":
        assert "IndexError: fail.py:" in ended[1].out


def test_a_death_between_two_collectives_of_a_step():
    with Running("fail_within.py", 2, 1, SPMDX_TIMEOUT=LIMIT) as running:
        ended = running.end(LIMIT)
    assert re.search(r"CommError: fail_within.py:\d+: .*" + SAID["killed"], ended[0].err), ended[
        0
    ].err
    assert "loss" in ended[0].out and "lost" not in ended[0].out


@pytest.mark.parametrize(
    "how, stage", [("killed", 1), ("stopped", 1), ("raises", 1), ("killed", 2)]
)
def test_a_stage_that_fails_among_microbatches_is_named_by_all_others(how, stage):
    said = {
        "killed": rf"process {stage} \(pid \d+\) has died",
        "stopped": rf"process {stage} \(pid \d+\) is stopped",
        "raises": rf"process {stage} \(pid \d+\) failed in step \d+ at .*ValueError: no more",
    }[how]
    limit = 15 if how == "stopped" else LIMIT
    program = "fail_in_a_stage.py"
    with Running(program, 3, 1, how, str(stage), SPMDX_TIMEOUT=limit) as running:
        others = [rank for rank in range(3) if rank != stage]
        for rank in others:
            running.children[rank].wait(LIMIT)
        ended = running.end(0 if how == "stopped" else LIMIT)
    for rank in others:
        how_it_ended = ended[rank]
        assert how_it_ended.status not in (0, None), ended
        assert re.search(rf"CommError: {program}:\d+: .*{said}", how_it_ended.err), how_it_ended.err


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_a_program_goes_on_after_an_error_that_all_processes_catch():
    said = run("fail.py", 2, 1, "recovers", SPMDX_TIMEOUT=LIMIT)
    losses = [re.findall(r"loss (\S+)", line) for line in said]
    assert losses[0] == losses[1] and len(losses[0]) == 5  # the step that failed is left out
    ends = [re.findall(r"^end (\S+)", line, re.MULTILINE) for line in said]
    assert ends[0] == ends[1] and len(ends[0]) == 1


def test_a_signal_that_ends_the_launcher_ends_all_of_them():
    with Running("fail.py", 2, 1, "stalls", SPMDX_TIMEOUT=LIMIT) as running:
        assert running.wait_for(1, "step 3")
        for child in running.children:
            os.kill(child.pid, signal.SIGINT)
        for how in running.end(LIMIT):
            assert how.status not in (0, None)
            assert "KeyboardInterrupt" in how.err
