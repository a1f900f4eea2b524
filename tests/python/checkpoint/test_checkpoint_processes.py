# SPDX-License-Identifier: Apache-2.0
"""Who writes what when several processes save: threads stand in for processes of two devices."""

import json
import os
import threading
from functools import partial

import pytest
import spmdx
import torch
from checkpoints import (
    LAYOUTS,
    Meeting,
    assert_same_bits,
    held_by,
    in_threads,
    mesh_of,
    placed,
    values,
    zeros,
)
from messages import eight_devices
from spmdx import runtime
from spmdx._checkpoint import save as checkpoint_save
from spmdx._checkpoint import together as checkpoint_together
from spmdx._checkpoint.format import boxes as checkpoint_boxes
from spmdx.checkpoint import CheckpointError, load

eight_devices()

COUNT, DEVICES = 4, 2
current = threading.local()


@pytest.fixture(autouse=True)
def four_processes(monkeypatch):
    """Each thread is a process: it sees the data of its own devices only."""
    own = held_by(DEVICES, lambda: current.process)
    monkeypatch.setattr(checkpoint_boxes, "_held", own)
    for module in checkpoint_boxes, checkpoint_save:
        monkeypatch.setattr(module, "process_index", lambda: current.process)
    for module in checkpoint_boxes, checkpoint_save, checkpoint_together:
        monkeypatch.setattr(module, "process_count", lambda: COUNT)
    monkeypatch.setattr(checkpoint_boxes, "own_count", lambda: DEVICES)
    yield
    current.process = 0


def in_turn(work):
    """What ``work()`` gives in each process, one after the other."""
    results = []
    for current.process in range(COUNT):
        results.append(work())
    return results


def at_once(work):
    """What ``work(process, exchange)`` gives or raises in each process, all at the same time."""
    meeting, results = Meeting(COUNT), [None] * COUNT

    def run(process):
        current.process = process
        try:
            results[process] = work(process, partial(meeting.exchange, process))
        except Exception as error:
            results[process] = error

    in_threads(run, range(COUNT))
    return results


def snapshots(tensors):
    return in_turn(lambda: checkpoint_save.snapshot({**tensors, "step": 5}, copy=False))


def write_all(tensors, path):
    taken = snapshots(tensors)
    return at_once(lambda process, exchange: checkpoint_save.write(taken[process], path, exchange))


def load_alone(target, path, monkeypatch):
    monkeypatch.undo()
    load(target, path)
    return target


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_box_is_written_by_one_process_that_holds_it(layout, tmp_path, monkeypatch):
    expected = values()
    assert write_all(placed(expected, layout, 8), tmp_path / "c") == [None] * COUNT
    written = json.loads((tmp_path / "c" / "spmdx.manifest.json").read_text())["manifest"]
    files = {chunk[2] for entry in written["entries"].values() for chunk in entry[3]}
    assert files == {f"__{process}_0.distcp" for process in range(COUNT)}
    target = load_alone({**zeros(expected), "step": 0}, tmp_path / "c", monkeypatch)
    assert target.pop("step") == 5
    assert_same_bits(target, expected)


def test_bytes_are_balanced():
    big = {f"t{i}": torch.ones(8, 8).to("spmdx") for i in range(8)}
    for t in big.values():
        spmdx.mark_sharding(t, mesh_of(8), (None, "b"))  # four replicas of each half
    taken = snapshots(big)
    sizes = [sum(d.nbytes for _, _, d in s.own if not isinstance(d, bytes)) for s in taken]
    assert sizes == [8 * 8 * 8 * 4 // COUNT] * COUNT
    assert [sum(isinstance(d, bytes) for _, _, d in s.own) for s in taken] == [1, 0, 0, 0]


def test_what_one_process_cannot_write_all_hear_of(tmp_path, monkeypatch):
    tensors = placed(values(), "2-D", 8)
    write_all(tensors, tmp_path / "c")
    original = checkpoint_save._write_own

    def failing(folder, snap):
        if current.process == 2:
            raise OSError(28, "No space left on device")
        return original(folder, snap)

    monkeypatch.setattr(checkpoint_save, "_write_own", failing)
    errors = write_all({name: t * 1 for name, t in tensors.items()}, tmp_path / "c")
    assert all(isinstance(error, CheckpointError) for error in errors)
    assert str(errors[0]).startswith("process 2 failed: OSError: [Errno 28] No space left")
    assert os.listdir(tmp_path) == ["c"]
    target = load_alone({**zeros(values()), "step": 0}, tmp_path / "c", monkeypatch)
    assert target["step"] == 5


def test_boxes_to_fill_are_those_of_the_process():
    x = spmdx.mark_sharding(torch.ones(8, 6).to("spmdx"), mesh_of(8), ("a", "b"))
    found = in_turn(lambda: checkpoint_boxes.boxes_to_fill(x))
    assert found[1] == [((2, 0), (2, 3)), ((2, 3), (2, 3))]
    assert in_turn(lambda: checkpoint_boxes.boxes_to_fill(torch.ones(2))) == [[((0,), (2,))]] * 4


def test_one_process_needs_no_store(monkeypatch):
    monkeypatch.undo()
    assert runtime.process_count() == 1
    with checkpoint_together.channel() as exchange:
        assert exchange(5) == [5]
