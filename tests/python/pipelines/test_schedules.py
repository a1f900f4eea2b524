# SPDX-License-Identifier: Apache-2.0
"""Schedules from Python: their texts and files, what is simulated, and its pictures."""

import copy
import os
import pickle

import matplotlib
import pytest
import spmdx
from spmdx.pipelines import Schedule, TimedAction

KINDS = ["gpipe", "1f1b", "zb-h1", "interleaved:2"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_is_read_again(kind, tmp_path):
    made = Schedule.make(kind, 3, 5)
    made.check()
    made.write_csv(tmp_path / "schedule.csv")
    copies = [
        Schedule.parse(str(made)),
        Schedule.read_csv(tmp_path / "schedule.csv"),
        pickle.loads(pickle.dumps(made)),
        copy.deepcopy(made),
        eval(repr(made)),
    ]
    assert {made, *copies} == {made} and made != str(made)
    assert (made.ranks, made.microbatches, made.chunks) == (3, 5, 1 + (kind == "interleaved:2"))
    assert os.listdir(tmp_path) == ["schedule.csv"]


def test_a_simulation_tells_times_in_the_order_of_starts():
    found = Schedule.make("zb-h1", 2, 2).simulate(2, 3.0, [1, 0.5], send=0.25)
    assert found.actions == [
        TimedAction(0, 0, "F", 0, 0.0, 2.0),
        TimedAction(0, 0, "F", 1, 2.0, 4.0),
        TimedAction(1, 1, "F", 0, 2.25, 4.25),
        TimedAction(1, 1, "I", 0, 4.25, 7.25),
        TimedAction(1, 1, "F", 1, 7.25, 9.25),
        TimedAction(0, 0, "I", 0, 7.5, 10.5),
        TimedAction(1, 1, "I", 1, 9.25, 12.25),
        TimedAction(0, 0, "W", 0, 10.5, 11.5),
        TimedAction(1, 1, "W", 0, 12.25, 12.75),
        TimedAction(0, 0, "I", 1, 12.5, 15.5),
        TimedAction(1, 1, "W", 1, 12.75, 13.25),
        TimedAction(0, 0, "W", 1, 15.5, 16.5),
    ]
    assert (found.total, found.idle) == (16.5, [4.5, 5.5])
    assert found.bubble == 10 / 23
    assert (found.in_flight, found.in_flight_to_input) == ([2, 2], [2, 1])


def test_stages_of_a_rank_go_round():
    actions = Schedule.make("interleaved:2", 2, 2).simulate().actions
    assert [(a.rank, a.stage) for a in actions if (a.kind, a.microbatch) == ("F", 0)] == [
        (0, 0),
        (1, 1),
        (0, 2),
        (1, 3),
    ]


@pytest.mark.parametrize(
    "ending, start", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_schedule_is_drawn(ending, start, tmp_path):
    path = tmp_path / f"schedule.{ending}"
    assert Schedule.make("interleaved:2", 4, 8).simulate().draw(path) is None
    assert path.read_bytes().startswith(start) and path.stat().st_size > 5000


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_names_ranks_kinds_and_microbatches(kind, tmp_path):
    simulation = Schedule.make(kind, 3, 5).simulate()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        simulation.draw(str(tmp_path / "schedule.svg"))
    text = (tmp_path / "schedule.svg").read_text()
    split = kind == "zb-h1"
    parts = ["rank 0", "rank 2", ">4<", "forward", f"bubble {simulation.bubble:.1%}"]
    for part in [*parts, *(["backward: input", "backward: weights"] if split else ["backward"])]:
        assert part in text
    assert ("backward: " in text) == split


def test_a_picture_that_is_written_nowhere_is_a_figure():
    shown = Schedule.make("1f1b", 2, 3).simulate().draw()
    assert isinstance(shown, matplotlib.figure.Figure)
    assert len(shown.axes[0].texts) == 12
    assert sum(len(lane.get_paths()) for lane in shown.axes[0].collections) == 12
    assert Schedule.make("1f1b", 1, 1).simulate(0, 0, 0).draw() is not None


def test_numbers_are_left_out_where_there_is_no_room_for_them():
    shown = Schedule.make("1f1b", 4, 100).simulate().draw()
    assert len(shown.axes[0].texts) == 0 and len(shown.axes[0].collections) == 8


def test_pipelines_are_public():
    assert spmdx.pipelines.Schedule is Schedule and "pipelines" in spmdx.__all__
