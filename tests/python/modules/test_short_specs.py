# SPDX-License-Identifier: Apache-2.0
"""One ellipsis in a partition spec: it means the same in every function that takes one."""

import copy
import pickle

import pytest
import spmdx
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

MESHES = [((8,), "a"), ((3,), "a"), ((2, 2), "ab"), ((4, 2), "ab"), ((2, 2, 2), "abc")]


@st.composite
def short_specs(draw):
    """A mesh, a shape, a spec with an ellipsis, and the same written out."""
    sizes, names = draw(st.sampled_from(MESHES))
    mesh = spmdx.Mesh(range(torch.Size(sizes).numel()), sizes, tuple(names))
    rank = draw(st.integers(0, 5))
    first = draw(st.integers(0, rank))
    last = draw(st.integers(first, rank))
    free, full = list(draw(st.permutations(list(names)))), []
    for dim in range(rank):
        count = 0 if first <= dim < last else draw(st.integers(0, min(2, len(free))))
        axes, free = free[:count], free[count:]
        full.append(None if not axes else axes[0] if count == 1 else tuple(axes))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    return mesh, shape, (*full[:first], ..., *full[last:]), tuple(full)


@settings(max_examples=60, deadline=None)
@given(short_specs())
def test_short_and_long_specs_are_the_same(drawn):
    mesh, shape, short, full = drawn
    values = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    plain = spmdx.mark_sharding(values.to("spmdx"), mesh, full)
    wanted = plain.sharding
    pair = spmdx.Sharding(mesh, short)
    assert (
        [s.indices for s in plain.local_shards]
        == [box for box in pair.boxes(shape)]
        == wanted.boxes(shape)
    )
    assert (
        [p.dim % len(shape) if p.is_shard() else None for p in pair.placements]
        == [p.dim if p.is_shard() else None for p in wanted.placements]
        if _can_be_placed(wanted)
        else True
    )
    spec = spmdx.data.ShardingSpec(mesh, short)
    (loaded,) = spmdx.data.device_loader([values], input_sharding=spec)
    made = [
        spmdx.mark_sharding(values.to("spmdx"), mesh, short),
        spmdx.mark_sharding(values.to("spmdx"), mesh, list(short)),
        spmdx.mark_sharding(values.to("spmdx"), mesh, spmdx.PartitionSpec(*short)),
        spmdx.mark_sharding(values.to("spmdx"), pair),
        spmdx.ShardedTensor.from_local_shards([s.data for s in plain.local_shards], mesh, short),
        plain.redistribute(mesh, short),
        loaded,
    ]
    for each in made:
        assert each.sharding == wanted and torch.equal(each.cpu(), values)


def _can_be_placed(sharding):
    try:
        return sharding.placements is not None
    except spmdx.ShardingError:
        return False


@settings(max_examples=25, deadline=None)
@given(short_specs())
def test_regions_read_them_alike(drawn):
    mesh, shape, short, full = drawn
    sizes = mesh.shape()
    shape = tuple(
        size * torch.Size(sizes[a] for a in _axes(entry)).numel()
        for size, entry in zip(shape, full, strict=True)
    )
    values = torch.randn(shape)
    shapes = []

    def tripled(x):
        shapes.append(tuple(x.shape))
        return x * 3

    results = [
        spmdx.shard_map(tripled, mesh, (spec,), spec)(values.to("spmdx")) for spec in (short, full)
    ]
    assert len(set(shapes)) == 1
    assert all(torch.equal(each.cpu(), values * 3) for each in results)


def _axes(entry):
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def test_one_spec_serves_parameters_of_any_rank():
    net = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.Linear(8, 8)).to("spmdx")
    spmdx.nn.shard_module(net, spmdx.get_1d_mesh("x"), {"*": ("x", ...)})
    assert [p.partition_spec for p in net.parameters()] == [
        ("x", None, None, None),
        ("x",),
        ("x", None),
        ("x",),
    ]


def test_they_are_shown_and_kept_as_they_were_written():
    mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
    spec = spmdx.PartitionSpec("data", ..., ("model",))
    assert repr(spec) == "PartitionSpec('data', ..., ('model',))"
    pair = spmdx.Sharding(mesh, spec)
    assert repr(pair) == "Sharding(Mesh(data=4, model=2), PartitionSpec('data', ..., 'model'))"
    for other in (pickle.loads(pickle.dumps(pair)), copy.deepcopy(pair)):
        assert other == pair and hash(other) == hash(pair) and other.spec == pair.spec
    assert pair != spmdx.Sharding(mesh, ("data", "model"))
    assert pair != spmdx.Sharding(mesh, (..., "data", "model"))
    assert spmdx.Sharding(mesh, (...,)).is_fully_replicated and not pair.is_fully_replicated
    assert spmdx.data.ShardingSpec(pair).partition_spec == spec[:2] + ("model",)


def layer():
    return torch.nn.Linear(2, 2).to("spmdx")


TWO = "has 2 ellipses. Expected at most one"
MANY = "dims beside its ellipsis, the rank of"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, m: spmdx.mark_sharding(x, m, (..., "data", ...)), TWO),
        (lambda x, m: spmdx.mark_sharding(x, m, ("data", None, None, ...)), MANY),
        (lambda x, m: spmdx.mark_sharding(x, m, ((..., "data"), None)), "has the entry"),
        (lambda x, m: spmdx.mark_sharding(x, m, ...), "Expected a tuple with one entry a dim"),
        (lambda x, m: spmdx.mark_sharding(x, spmdx.Sharding(m, (None, None, "data", ...))), MANY),
        (lambda x, m: spmdx.Sharding(m, (..., ...)), TWO),
        (lambda x, m: spmdx.Sharding(m, ("data", ...)).boxes(()), MANY),
        (lambda x, m: spmdx.data.ShardingSpec(m, (..., ...)), TWO),
        (lambda x, m: spmdx.data.ShardingSpec(m, (..., "data"), True), "an entry for the rows"),
        (lambda x, m: spmdx.shard_map(abs, m, ((..., ...),), None)(x), TWO),
        (lambda x, m: spmdx.shard_map(abs, m, ((None, "data", None, ...),), None)(x), MANY),
        (
            lambda x, m: spmdx.nn.shard_module(
                torch.nn.Linear(2, 2).to("spmdx"), m, {"*": (...,) * 2}
            ),
            TWO,
        ),
        (lambda x, m: spmdx.mark_sharding(x, m, ("data", ..., "data")), "data"),
    ],
)
def test_what_it_cannot_mean_is_refused(call, said):
    x, mesh = torch.ones(8, 8).to("spmdx"), spmdx.get_1d_mesh("data")
    with pytest.raises(spmdx.ShardingError) as caught:
        call(x, mesh)
    assert said in str(caught.value)
    assert spmdx.get_annotation(x) is None
