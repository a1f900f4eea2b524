# SPDX-License-Identifier: Apache-2.0
"""Parts that processes load are one batch: every row in its place, none seen by another process."""

import pytest
import spmdx
import torch
from messages import eight_devices, message_of
from spmdx._data import parts as placing
from spmdx._data import split as splitting
from spmdx.data import batch_shard
from torch.utils.data import DistributedSampler
from worlds import World

eight_devices()


def mesh(shape, names, ids=None):
    count = torch.Size(shape).numel()
    return spmdx.Mesh(range(count) if ids is None else ids, shape, names)


LINE, GRID = ("data",), ("data", "model")
# processes, devices of each, the mesh, the spec, parts, the index of each process's part.
LAYOUTS = {
    "two of one": (2, 1, mesh((2,), LINE), ("data",), 2, [0, 1]),
    "two of four": (2, 4, mesh((8,), LINE), ("data",), 2, [0, 1]),
    "four of two": (4, 2, mesh((8,), LINE), ("data",), 4, [0, 1, 2, 3]),
    "three of one": (3, 1, mesh((3,), LINE), ("data",), 3, [0, 1, 2]),
    "tensor parallel within": (4, 2, mesh((4, 2), GRID), ("data",), 4, [0, 1, 2, 3]),
    "tensor parallel over pairs": (
        8,
        1,
        mesh((4, 2), GRID),
        ("data",),
        4,
        [0, 0, 1, 1, 2, 2, 3, 3],
    ),
    "tensor parallel over all": (4, 2, mesh((8,), ("model",)), (None, "model"), 1, [0] * 4),
    "model first": (4, 2, mesh((2, 4), GRID[::-1]), ("data",), 2, [0, 1, 0, 1]),
    "both axes cut rows": (4, 2, mesh((4, 2), GRID), (GRID,), 4, [0, 1, 2, 3]),
    "minor axis first": (2, 4, mesh((2, 4), GRID), (GRID[::-1],), 2, [0, 1]),
    "turned": (4, 2, mesh((8,), LINE, [6, 7, 4, 5, 2, 3, 0, 1]), ("data",), 4, [3, 2, 1, 0]),
    "interleaved": (2, 2, mesh((4,), LINE, [0, 2, 1, 3]), ("data",), 2, [0, 1]),
    "columns too": (4, 2, mesh((2, 4), GRID), ("data", "model"), 2, [0, 0, 1, 1]),
    "a part of the devices": (2, 4, mesh((4,), LINE, [0, 1, 4, 5]), ("data",), 2, [0, 1]),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@layouts
def test_every_process_learns_its_part(layout, monkeypatch):
    processes, each, where, spec, count, indices = layout
    world = World(monkeypatch, processes, each)
    assert world.run(lambda p: batch_shard(where, spec)) == [(count, i) for i in indices]


def place_everywhere(world, monkeypatch, parts, where, spec):
    """The tensor on the device, made of the pieces that all processes upload."""
    rows = [len(part) for part in parts]
    at = dict.fromkeys(range(where.size()))
    from_local = spmdx._C.from_local

    def note(pieces, sharding, shape, dtype):
        owners = splitting.processes_of(where)
        mine = [i for i, p in enumerate(owners) if p == spmdx.runtime.process_index()]
        assert len(pieces) == len(mine)
        at.update(zip(mine, pieces, strict=True))
        if any(piece is None for piece in at.values()):  # others come; only the last one is used
            return torch.zeros(shape, dtype=dtype).to("spmdx")
        boxes = sharding.boxes(shape)
        for piece, box in zip(at.values(), boxes, strict=True):
            assert list(piece.shape) == [s.stop - s.start for s in box]
        return from_local(list(at.values()), sharding._handle, list(shape), dtype)

    monkeypatch.setattr(placing, "_joined", note)
    for process in range(world.processes):
        with world.here(process):
            split = splitting.split_of(where, spec)
            placed = placing.place_part(parts[process], rows, split, where, spec, "batch")
    return placed


def expected(parts, where, spec, indices, world):
    """The rows of all parts, each cut into the chunks of its process."""
    with world.here(0):
        split = splitting.split_of(where, spec)
    rows = {}
    longest = max(map(len, parts))
    length = -(-longest // len(split.parts[0]))
    for process, part in enumerate(parts):
        for i, chunk in enumerate(split.parts[indices[process]]):
            rows[chunk] = part[i * length : (i + 1) * length]
    return torch.cat([rows[chunk] for chunk in sorted(rows)])


@layouts
@pytest.mark.parametrize("sizes", ["even", "odd", "one", "last short", "first short", "none"])
def test_parts_together_are_the_batch(layout, sizes, monkeypatch):
    processes, each, where, spec, count, indices = layout
    world = World(monkeypatch, processes, each)
    lengths = {
        "even": [8] * count,
        "odd": [5] * count,
        "one": [1] * count,
        "last short": [6] * (count - 1) + [1],
        "first short": [0] + [7] * (count - 1),
        "none": [0] * count,
    }[sizes]
    total = sum(lengths)
    whole = torch.arange(total * 8.0).view(total, 8)
    own = whole.split(lengths)
    parts = [own[i] for i in indices]
    placed = place_everywhere(world, monkeypatch, parts, where, spec)
    want = expected(parts, where, spec, indices, world)
    assert torch.equal(placed.cpu(), want)
    if list(where.device_ids) != [0, 2, 1, 3] and spec != (GRID[::-1],):
        assert torch.equal(want, whole), "parts follow each other where their chunks do"
    entries = splitting.padded(spec, 2)
    assert spmdx.get_annotation(placed).spec == entries
    one_device = spmdx.mark_sharding(want.to("spmdx"), where, entries)
    for got, shard in zip(placed.local_shards, one_device.local_shards, strict=True):
        assert got.indices == shard.indices and torch.equal(got.data, shard.data)


def test_equal_parts_move_nothing(monkeypatch):
    world = World(monkeypatch, 4, 2)
    where = mesh((8,), LINE)
    parts = [torch.randn(6, 3) for _ in range(4)]
    placed = place_everywhere(world, monkeypatch, parts, where, ("data",))
    spmdx.mark_step()
    y = placed * 2
    assert spmdx.explain(y).wire_bytes == 0
    assert torch.equal(y.cpu(), torch.cat(parts) * 2)


def test_a_distributed_sampler_gets_its_numbers(monkeypatch):
    world = World(monkeypatch, 8, 1)
    where = mesh((4, 2), GRID)

    def indices(process):
        replicas, rank = batch_shard(where, ("data",))
        return list(DistributedSampler(range(12), replicas, rank, shuffle=False))

    drawn = world.run(indices)
    assert drawn[0::2] == drawn[1::2] and sorted(sum(drawn[0::2], [])) == list(range(12))


def test_rows_that_are_no_equal_parts_are_refused(monkeypatch):
    world = World(monkeypatch, 2, 4)

    def said(where, spec=("data",)):
        with world.here(0):
            return message_of(spmdx.ShardingError, lambda: batch_shard(where, spec))

    assert said(mesh((3,), LINE, [0, 1, 4])) == (
        "HERE: batch_shard: no equal parts of a batch lie on Mesh(data=3, ids=[0, 1, 4]) as "
        "('data',) says: of 3 chunks of rows the processes hold process 0: [0, 1], process 1: [2]. "
        "Expected processes with the same chunks, or as many others. Give the mesh the devices of "
        "a process beside each other, or set minibatch=False."
    )
    overlapping = mesh((3, 2), ("data", "model"), [0, 1, 2, 4, 5, 6])
    assert "process 0: [0, 1], process 1: [1, 2]" in said(overlapping)
    assert said(mesh((4,), LINE)) == (
        "HERE: batch_shard: process 1 has no device of Mesh(data=4). Expected one of every "
        "process, since each gives a part of the batch. Make the mesh larger, or set "
        "minibatch=False."
    )
    assert "'rows'" in said(mesh((8,), LINE), ("rows",))
