# SPDX-License-Identifier: Apache-2.0
"""Schedules and those of torch.distributed.pipelining: the same tables, and files of one form."""

import random
import types

import pytest
import spmdx
from messages import message_of
from spmdx.pipelines import Schedule
from torch.distributed.pipelining import schedules as peer


def stages(ranks, chunks):
    """What torch's schedules ask of the stages of rank 0."""
    return [
        types.SimpleNamespace(
            stage_index=chunk * ranks,
            num_stages=ranks * chunks,
            group_rank=0,
            group_size=ranks,
            submod=None,
            has_backward=True,
            is_first=chunk == 0,
            is_last=ranks == 1 and chunk == chunks - 1,
        )
        for chunk in range(chunks)
    ]


def runtime(schedule):
    return peer._PipelineScheduleRuntime(
        stages(schedule.ranks, schedule.chunks), schedule.microbatches
    )


def table(order):
    """The text of torch's table, without its bubbles and what is no action of a microbatch."""
    rows = []
    for rank in sorted(order):
        actions = [a for a in order[rank] if a is not None and a.is_compute_op]
        rows.append(
            [
                (a.stage_index // len(order), a.computation_type.value, a.microbatch_index)
                for a in actions
            ]
        )
    return "\n".join(" ".join(f"{c}.{k}{m}" if c else f"{k}{m}" for c, k, m in row) for row in rows)


@pytest.mark.parametrize("microbatches", [1, 3, 4, 8, 12])
@pytest.mark.parametrize("ranks", [2, 4])
def test_gpipe_is_that_of_torch(ranks, microbatches):
    made = peer.ScheduleGPipe(stages(ranks, 1)[0], microbatches)
    assert str(Schedule.make("gpipe", ranks, microbatches)) == table(made._get_pipeline_order())


@pytest.mark.parametrize("microbatches", [4, 8, 12])
@pytest.mark.parametrize("ranks", [2, 4])
def test_1f1b_is_that_of_torch(ranks, microbatches):
    made = peer.Schedule1F1B(stages(ranks, 1)[0], microbatches)
    ours = str(Schedule.make("1f1b", ranks, microbatches)).split("\n")
    # Of the last rank, torch's table (2.13) counts forwards from 1, which it does not run so.
    assert ours[:-1] == table(made._get_pipeline_order()).split("\n")[:-1]


@pytest.mark.parametrize("microbatches", [1, 3, 4, 8, 10, 12])
@pytest.mark.parametrize("ranks, chunks", [(2, 2), (4, 2), (4, 3)])
def test_interleaved_schedules_are_those_of_torch(ranks, chunks, microbatches):
    made = peer.ScheduleInterleaved1F1B(stages(ranks, chunks), microbatches)
    ours = Schedule.make(f"interleaved:{chunks}", ranks, microbatches)
    assert str(ours) == table(made.pipeline_order)


@pytest.mark.parametrize("microbatches", [1, 3, 4, 8, 12])
@pytest.mark.parametrize("ranks", [2, 4])
def test_zb_h1_is_that_of_torch(ranks, microbatches):
    made = peer.ScheduleInterleavedZeroBubble(stages(ranks, 1), microbatches)
    assert str(Schedule.make("zb-h1", ranks, microbatches)) == table(made.pipeline_order)


def drawn():
    """200 times ranks, microbatches and chunks, with each kind."""
    draw = random.Random(5)
    for _ in range(200):
        ranks, microbatches, chunks = draw.randint(1, 6), draw.randint(1, 12), draw.randint(2, 3)
        for kind in ("gpipe", "1f1b", "zb-h1", f"interleaved:{chunks}"):
            yield Schedule.make(kind, ranks, microbatches)


def test_files_are_accepted_by_the_loader_of_torch(tmp_path):
    for schedule in drawn():
        schedule.write_csv(tmp_path / "ours.csv")
        loaded = runtime(schedule)
        loaded._load_csv(tmp_path / "ours.csv")
        assert str(schedule) == table(loaded.pipeline_order)
        loaded._dump_csv(tmp_path / "theirs.csv", format="compute_only")
        written = [(tmp_path / name).read_bytes() for name in ("ours.csv", "theirs.csv")]
        assert written[0] == written[1]
        assert Schedule.read_csv(tmp_path / "theirs.csv") == schedule


@pytest.mark.parametrize("kind", ["gpipe", "1f1b", "zb-h1", "interleaved:2"])
def test_torch_finds_no_dead_lock(kind, tmp_path):
    schedule = Schedule.make(kind, 4, 8)
    schedule.write_csv(tmp_path / "ours.csv")
    loaded = runtime(schedule)
    loaded._load_csv(tmp_path / "ours.csv")
    where = loaded.stage_index_to_group_rank.__getitem__
    count = schedule.ranks * schedule.chunks
    assert [where(stage) for stage in range(count)] == [stage % 4 for stage in range(count)]
    sent = peer._add_send_recv(loaded.pipeline_order, where, count)
    ran = peer._simulate_comms_compute(sent, where, count)
    assert table(ran) == str(schedule)


@pytest.mark.parametrize("kind", ["gpipe", "1f1b", "zb-h1", "interleaved:2"])
def test_schedules_with_communication_are_read_without(kind, tmp_path):
    schedule = Schedule.make(kind, 4, 8)
    schedule.write_csv(tmp_path / "ours.csv")
    loaded = runtime(schedule)
    loaded._load_csv(tmp_path / "ours.csv")
    loaded._dump_csv(tmp_path / "theirs.csv", format="compute_comms")
    assert "SEND_F" in (tmp_path / "theirs.csv").read_text()
    assert Schedule.read_csv(tmp_path / "theirs.csv") == schedule


def test_bubbles_of_files_are_passed_over(tmp_path):
    made = peer.ScheduleInterleaved1F1B(stages(4, 2), 8)
    made._dump_csv(tmp_path / "theirs.csv", format="compute_only")
    assert ",," in (tmp_path / "theirs.csv").read_text()
    assert Schedule.read_csv(tmp_path / "theirs.csv") == Schedule.make("interleaved:2", 4, 8)


def test_schedules_that_go_back_and_forth_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, last = stages(2, 2)
    last.stage_index, last.is_last = 3, True
    peer.ScheduleZBVZeroBubble([first, last], 4)._dump_csv("zbv.csv", format="compute_only")
    assert message_of(spmdx.ShardingError, lambda: Schedule.read_csv("zbv.csv")) == (
        "HERE: Schedule.read_csv: zbv.csv, line 1, cell 4: '3F0' is of stage 3. Expected rank 0 of "
        "2 to hold the stages 0, 2, …. Use a schedule whose stages go round the ranks."
    )
