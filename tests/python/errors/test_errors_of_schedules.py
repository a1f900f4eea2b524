# SPDX-License-Identifier: Apache-2.0
"""The whole messages about schedules of pipelines."""

import sys

import pytest
import spmdx
from messages import cases, message_of
from spmdx.pipelines import Schedule

SCHEDULES = [
    (
        "kind",
        lambda: Schedule.make("2f2b", 4, 8),
        "HERE: Schedule.make: no schedule is called '2f2b'. Expected 'gpipe', '1f1b', "
        "'interleaved:2' or another number of chunks, or 'zb-h1'. Write one of these, or read a "
        "table of your own.",
    ),
    (
        "kind_of_a_number",
        lambda: Schedule.make(3, 4, 8),
        "HERE: Schedule.make: the kind is 3. Expected a string. Write '1f1b'.",
    ),
    (
        "ranks",
        lambda: Schedule.make("1f1b", 4.5, 8),
        "HERE: Schedule.make: ranks is [4.5]. Expected integers. Write 4.",
    ),
    (
        "no_microbatches",
        lambda: Schedule.make("1f1b", 4, 0),
        "HERE: Schedule.make: a schedule for 0 microbatches. Expected from 1 to 999999. Give the "
        "number that the pipeline has.",
    ),
    (
        "too_many",
        lambda: Schedule.make("1f1b", 9999, 9999),
        "HERE: Schedule.make: a schedule for 9999 ranks, 1 chunks and 9999 microbatches. Expected "
        "at most 16777216 forwards. Make fewer microbatches.",
    ),
    (
        "text_of_a_list",
        lambda: Schedule.parse(["F0"]),
        "HERE: Schedule.parse: the text is ['F0']. Expected a string. Write 'F0 B0'.",
    ),
    (
        "word",
        lambda: Schedule.parse("F0 B0\nF0 backward"),
        "HERE: Schedule.parse: line 2, column 4: found 'backward'. Expected F, B, I or W and the "
        "number of a microbatch below 1000000. Write F0, or 1.F0 for the rank's chunk 1.",
    ),
    (
        "no_file",
        lambda: Schedule.read_csv("nowhere.csv"),
        "HERE: Schedule.read_csv: nowhere.csv cannot be read: FileNotFoundError: [Errno 2] No such "
        "file or directory: 'nowhere.csv'. Expected a CSV file with a row a rank. Write one with "
        "Schedule.write_csv.",
    ),
    (
        "no_path",
        lambda: Schedule.read_csv(""),
        "HERE: Schedule.read_csv: the path is ''. Expected that of a file. Write 'schedule.csv'.",
    ),
    (
        "write_nowhere",
        lambda: Schedule.make("1f1b", 2, 2).write_csv(None),
        "HERE: Schedule.write_csv: the path is None. Expected that of a file. Write "
        "'schedule.csv'.",
    ),
    (
        "repeated",
        lambda: Schedule.parse("F0 F0 B0").check(),
        "HERE: Schedule.check: rank 0, position 1: 'F0' runs a second time, after position 0. "
        "Expected every action once. Remove one of the two.",
    ),
    (
        "whole_and_half",
        lambda: Schedule.parse("F0 I0 B0").check(),
        "HERE: Schedule.check: rank 0, position 2: 'B0' repeats a part of 'I0' at position 1. "
        "Expected a backward B, or its halves I and W. Remove the B, or the halves.",
    ),
    (
        "forgotten",
        lambda: Schedule.parse("F0 F1 B0 B1\nF0 B0 B1").check(),
        "HERE: Schedule.check: rank 1, position 2: 'B1' waits for 'F1' of rank 1, which is not in "
        "the table. Expected each microbatch on every stage. Add 'F1' to rank 1, or remove 'B1'.",
    ),
    (
        "no_backward",
        lambda: Schedule.parse("F0").check(),
        "HERE: Schedule.check: rank 0, position 0: 'F0' has no 'B0' in the table. Expected a "
        "backward, whole or in halves. Add 'B0' to rank 0.",
    ),
    (
        "half_a_backward",
        lambda: Schedule.parse("F0 I0").check(),
        "HERE: Schedule.check: rank 0, position 1: 'I0' has no 'W0' in the table. Expected both "
        "halves of the backward. Add 'W0' to rank 0.",
    ),
    (
        "gap",
        lambda: Schedule.parse("F1 B1").check(),
        "HERE: Schedule.check: rank 0, position 0: 'F1' is of microbatch 1, and there are 1. "
        "Expected numbers from 0 without a gap. Number them 0 to 0.",
    ),
    (
        "late",
        lambda: Schedule.parse("B0 F0").check(),
        "HERE: Schedule.check: rank 0, position 0: 'B0' waits for 'F0' at position 1 of the same "
        "rank. Expected it before. Move 'F0' in front of 'B0'.",
    ),
    (
        "dead_lock",
        lambda: Schedule.parse("F0 B0 F1 B1\nF0 F1 B0 B1").simulate(),
        "HERE: Schedule.simulate: rank 0, position 1: 'B0' waits for 'B0' at position 2 of rank 1, "
        "behind 'F1' at position 1; 'F1' waits for 'F1' at position 2 of rank 0, behind 'B0' at "
        "position 1: a circular wait. Expected an order in which some rank can always go on. Move "
        "one of these actions in front of what it is behind.",
    ),
    (
        "nothing",
        lambda: Schedule.parse("").simulate(),
        "HERE: Schedule.simulate: the schedule has no actions. Expected a line of them for each "
        "rank. Write 'F0 B0' for one rank and one microbatch.",
    ),
    (
        "time_of_a_word",
        lambda: Schedule.make("1f1b", 2, 2).simulate(forward="fast"),
        "HERE: Schedule.simulate: forward is 'fast'. Expected a number, or one for each stage. "
        "Write 1.0.",
    ),
    (
        "times_of_other_stages",
        lambda: Schedule.make("1f1b", 2, 2).simulate(backward_input=[1, 2, 3]),
        "HERE: Schedule.simulate: backward_input has 3 numbers. Expected 2, one for each stage. "
        "Write one number for all.",
    ),
    (
        "negative_time",
        lambda: Schedule.make("1f1b", 2, 2).simulate(backward_weight=-1),
        "HERE: Schedule.simulate: the time of a weight gradient is negative. Expected a finite "
        "number that is at least 0. Write 1.0.",
    ),
    (
        "send",
        lambda: Schedule.make("1f1b", 2, 2).simulate(send=None),
        "HERE: Schedule.simulate: send is None. Expected a number. Write 0.5.",
    ),
    (
        "picture",
        lambda: Schedule.make("1f1b", 2, 2).simulate().draw("step.txt"),
        "HERE: Simulation.draw: the file 'step.txt' ends in '.txt'. Expected one of .png, .svg, "
        '.pdf. Write "step.png".',
    ),
]
FILES = [
    (
        "cell",
        "0F0,0B0\r\n1F0,backward\r\n",
        "bad.csv, line 2, cell 2: found 'backward'. Expected a stage, F, B, I or W, and a "
        "microbatch. Write '0F0', or leave the cell empty.",
    ),
    (
        "stages_back_and_forth",
        "0F0,3F0,3B0,0B0\r\n1F0,2F0,2B0,1B0\r\n",
        "bad.csv, line 1, cell 2: '3F0' is of stage 3. Expected rank 0 of 2 to hold the stages 0, "
        "2, …. Use a schedule whose stages go round the ranks.",
    ),
    (
        "binary",
        b"\xff\xfe",
        "bad.csv cannot be read: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in "
        "position 0: invalid start byte. Expected a CSV file with a row a rank. Write one with "
        "Schedule.write_csv.",
    ),
]


@pytest.mark.parametrize("call, message", cases(SCHEDULES))
def test_a_wrong_schedule_is_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message


@pytest.mark.parametrize("content, message", cases(FILES))
def test_a_wrong_file_of_a_schedule_is_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    found = message_of(spmdx.ShardingError, lambda: Schedule.read_csv("bad.csv"))
    assert found == f"HERE: Schedule.read_csv: {message}"


def test_a_picture_of_a_schedule_wants_matplotlib(monkeypatch):
    simulation = Schedule.make("1f1b", 2, 2).simulate()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert message_of(ImportError, lambda: simulation.draw()) == (
        "Simulation.draw: matplotlib is not installed. Expected it for pictures. Run "
        "`pip install matplotlib`, or write print(simulation.actions)."
    )
