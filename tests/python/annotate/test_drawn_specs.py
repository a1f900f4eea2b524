# SPDX-License-Identifier: Apache-2.0
"""Partition specs in all their forms, over drawn meshes: what each device holds is what a model in
plain Python says."""

import pytest
import spmdx
import torch
from drawn import boxes_of, cuts, meshes, shapes, spec_of
from hypothesis import given
from hypothesis import strategies as st
from properties import examples


@st.composite
def placed(draw):
    """A mesh, the axes that cut each dim, and a shape."""
    mesh, shape = draw(meshes()), draw(shapes())
    return mesh, draw(cuts(mesh, len(shape))), shape


def numbers(shape):
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


@st.composite
def written(draw, mesh, entries):
    """One of the forms in which users may write it."""

    def axis(name):
        return draw(st.sampled_from([name, mesh.axis_names.index(name)]))

    def entry(axes):
        said = tuple(axis(name) for name in axes)
        forms = [said, list(said)]
        if len(said) < 2:
            forms.append(said[0] if said else None)
        return draw(st.sampled_from(forms))

    spec = [entry(axes) for axes in entries]
    return draw(st.sampled_from([spec, tuple(spec), spmdx.PartitionSpec(*spec)]))


@given(placed(), st.data())
@examples(150)
def test_every_device_holds_what_was_said(layout, data):
    mesh, entries, shape = layout
    want = list(boxes_of(mesh, entries, shape))
    x = numbers(shape).to("spmdx")
    assert spmdx.mark_sharding(x, mesh, data.draw(written(mesh, entries))) is x
    assert x.partition_spec == spec_of(entries)
    assert x.sharding.boxes(shape) == want
    assert [s.device for s in x.local_shards] == mesh.device_ids.tolist()
    for shard, box in zip(x.local_shards, want, strict=True):
        assert shard.indices == box and torch.equal(shard.data, numbers(shape)[box])
    assert torch.equal(x.full_tensor(), numbers(shape))


@pytest.mark.filterwarnings("ignore:.*another shape from step to step")
@given(placed(), st.data())
@examples(60)
def test_moving_from_layout_to_layout_keeps_the_numbers(layout, data):
    mesh, entries, shape = layout
    x = spmdx.mark_sharding(numbers(shape).to("spmdx"), mesh, spec_of(entries))
    y = x * 2
    other = data.draw(cuts(mesh, len(shape)))
    y = spmdx.mark_sharding(y, mesh, spec_of(other))
    for shard, box in zip(y.local_shards, boxes_of(mesh, other, shape), strict=True):
        assert torch.equal(shard.data, 2 * numbers(shape)[box])


@given(placed())
@examples(60)
def test_pieces_that_go_in_come_out(layout):
    mesh, entries, shape = layout
    x = spmdx.mark_sharding(torch.zeros(shape).to("spmdx"), mesh, spec_of(entries))
    x.load_local_shards_([numbers(shape)[box].clone() for box in boxes_of(mesh, entries, shape)])
    assert torch.equal(x.cpu(), numbers(shape))


ENTRY = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.sampled_from(["i", "j", "k", ""]),
    st.lists(st.one_of(st.integers(-1, 2), st.sampled_from(["i", "j"])), max_size=3).map(tuple),
    st.sampled_from([1.5, True, b"i", ("i", None)]),
)


def is_right(mesh, spec, rank):
    """Whether a spec says something: as many entries as dims, axes of the mesh, none twice."""
    axes = [a for e in spec for a in (e if isinstance(e, tuple) else () if e is None else (e,))]
    if any(isinstance(a, bool) or not isinstance(a, int | str) for a in axes):
        return False
    count = len(mesh.axis_names)
    known = [*mesh.axis_names, *range(count)]
    if len(spec) != rank or any(a not in known for a in axes):
        return False
    places = [mesh.axis_names.index(a) if isinstance(a, str) else a for a in axes]
    return len(set(places)) == len(places)


@given(meshes(), shapes(), st.lists(ENTRY, max_size=4).map(tuple))
@examples(300)
def test_whatever_is_written_is_right_or_refused(mesh, shape, spec):
    x = torch.zeros(shape).to("spmdx")
    if is_right(mesh, spec, len(shape)):
        spmdx.mark_sharding(x, mesh, spec)
        return
    with pytest.raises(spmdx.ShardingError):
        spmdx.mark_sharding(x, mesh, spec)
    assert spmdx.get_annotation(x) is None
