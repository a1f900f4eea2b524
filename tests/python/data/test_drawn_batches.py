# SPDX-License-Identifier: Apache-2.0
"""Batches that processes load in parts, over drawn meshes: who holds which rows is refused, or what
each process gives lies in its place."""

import pytest
import spmdx
import torch
from drawn import boxes_of, cuts, spec_of
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import examples
from spmdx._data import split as splitting
from test_data_parts import place_everywhere
from worlds import World

WORLDS = ((1, 4), (2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (4, 1), (4, 2))
SHAPES = {2: [(2,)], 3: [(3,)], 4: [(4,), (2, 2)], 6: [(6,), (2, 3)], 8: [(8,), (2, 4), (4, 2)]}


@st.composite
def layouts(draw):
    """Processes, devices of each, a mesh of all of them, and what cuts rows and columns."""
    processes, each = draw(st.sampled_from(WORLDS))
    count = processes * each
    shape = draw(st.sampled_from(SHAPES[count]))
    devices = draw(st.one_of(st.just(list(range(count))), st.permutations(range(count))))
    mesh = spmdx.Mesh(devices, shape, ("i", "j")[: len(shape)])
    return processes, each, mesh, draw(cuts(mesh, 2))


def chunks_held(processes, each, mesh, entries):
    """For each process the chunks of rows that its devices hold, by the model of a batch that is
    long enough for all."""
    rows = [box[0].start for box in boxes_of(mesh, entries, (24 * mesh.size(), 1))]
    order = sorted(set(rows))
    held = [set() for _ in range(processes)]
    for device, start in zip(mesh.device_ids.tolist(), rows, strict=True):
        held[device // each].add(order.index(start))
    return held, len(order)


@given(layouts())
@examples(200)
def test_parts_are_equal_or_refused(layout):
    processes, each, mesh, entries = layout
    held, count = chunks_held(*layout)
    parts = {frozenset(chunks) for chunks in held}
    equal = len({len(part) for part in parts}) == 1 and sum(map(len, parts)) == count
    with pytest.MonkeyPatch.context() as patch, World(patch, processes, each).here(0):
        if not equal:
            with pytest.raises(spmdx.ShardingError):
                splitting.split_of(mesh, spec_of(entries))
            return
        split = splitting.split_of(mesh, spec_of(entries))
    assert [set(split.parts[part]) for part in split.part_of] == held
    assert split.parts == sorted(tuple(sorted(part)) for part in parts)


@given(layouts(), st.data())
@examples(60)
def test_every_row_of_every_part_is_in_the_batch_once(layout, data):
    processes, each, mesh, entries = layout
    held, count = chunks_held(*layout)
    parts = sorted({tuple(sorted(chunks)) for chunks in held})
    assume(sum(map(len, parts)) == count and len({len(part) for part in parts}) == 1)
    lengths = [data.draw(st.integers(0, 7)) for _ in parts]
    rows = torch.arange(sum(lengths) * 4.0).view(-1, 4)
    own = dict(zip(parts, rows.split(lengths), strict=True))
    mine = [own[tuple(sorted(chunks))] for chunks in held]
    with pytest.MonkeyPatch.context() as patch:
        world = World(patch, processes, each)
        placed = place_everywhere(world, patch, mine, mesh, spec_of(entries))
        batch = placed.cpu()
    assert sorted(batch.flatten().tolist()) == rows.flatten().tolist()
    in_order = [chunk for part in parts for chunk in part] == list(range(count))
    assert not in_order or torch.equal(batch, rows)
