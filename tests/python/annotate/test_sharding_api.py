# SPDX-License-Identifier: Apache-2.0
"""Meshes, annotations and sharded tensors behave as their documentation says."""

import copy
import io
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import spmdx
import torch


@pytest.fixture(scope="module")
def mesh():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    return spmdx.Mesh(range(8), (4, 2), ("data", "model"))


def numbers(*shape):
    return torch.arange(float(np.prod(shape))).reshape(shape)


def marked(mesh, spec, *shape):
    return spmdx.mark_sharding(numbers(*shape).to("spmdx"), mesh, spec)


def test_a_mesh_tells_its_shape_and_names(mesh):
    assert mesh.shape() == OrderedDict(data=4, model=2)
    assert (mesh.size(), mesh.mesh_shape, mesh.axis_names) == (8, (4, 2), ("data", "model"))
    assert mesh.get_logical_mesh().tolist() == np.arange(8).reshape(4, 2).tolist()
    assert (mesh.get_axis_name_idx("model"), mesh.get_axis_name_idx("x")) == (1, None)
    assert repr(mesh) == "Mesh(data=4, model=2)"


def test_equal_meshes_are_equal_keys_and_survive_pickle(mesh):
    again = pickle.loads(pickle.dumps(mesh))
    assert again == mesh and {mesh: 1}[again] == 1
    assert spmdx.Mesh(range(8), (2, 4), ("data", "model")) != mesh


def test_a_mesh_may_be_any_subset_in_any_order(mesh):
    part = spmdx.Mesh([6, 2, 0, 3], (2, 2))
    assert part.device_ids.tolist() == [6, 2, 0, 3] and part.axis_names == ("axis0", "axis1")
    assert [s.device for s in marked(part, (0, None), 4, 2).local_shards] == [6, 2, 0, 3]


def test_the_global_mesh_is_what_was_set(mesh):
    spmdx.set_global_mesh(mesh)
    assert spmdx.get_global_mesh() is mesh
    spmdx.set_global_mesh(None)
    assert spmdx.get_global_mesh() is None


@pytest.mark.parametrize(
    "spec, written",
    [
        (("data", None), ("data", None)),
        ((0, 1), ("data", "model")),
        ((None, ("model", "data")), (None, ("model", "data"))),
        (((), ("data",)), (None, "data")),
        (spmdx.PartitionSpec(None, None), (None, None)),
        ((("data", 1), None), (("data", "model"), None)),
    ],
)
def test_every_form_of_spec_cuts_and_gathers_back(mesh, spec, written):
    x = marked(mesh, spec, 16, 24)
    assert x.partition_spec == written
    assert torch.equal(x.full_tensor(), numbers(16, 24))
    for shard in x.local_shards:
        assert torch.equal(shard.data, numbers(16, 24)[shard.indices])


def test_uneven_and_empty_shards_are_cut_as_chunk_does(mesh):
    x = marked(mesh, ("data",), 5)
    assert [s.data.tolist() for s in x.local_shards[::2]] == [[0, 1], [2, 3], [4], []]


def test_replicas_are_numbered(mesh):
    x = marked(mesh, ("data", None), 8, 2)
    assert [s.replica_id for s in x.local_shards] == [0, 1] * 4


def test_marking_is_in_place_and_results_are_plain(mesh):
    x = numbers(8, 4).to("spmdx")
    y = spmdx.mark_sharding(x, mesh, ("data", None))
    assert y is x and type(x) is spmdx.ShardedTensor
    assert type(x + 1) is torch.Tensor and type(x.t()) is torch.Tensor
    assert spmdx.get_sharding(x + 1).spec == ("data", None)
    x.add_(1)
    assert spmdx.get_annotation(x).spec == ("data", None)
    assert torch.equal(x.cpu(), numbers(8, 4) + 1)


def test_a_parameter_stays_one(mesh):
    net = torch.nn.Linear(8, 8).to("spmdx")
    weight = spmdx.mark_sharding(net.weight, mesh, ("model", None))
    spmdx.mark_step()
    assert weight is net.weight and weight in set(net.parameters())
    assert isinstance(weight, torch.nn.Parameter) and isinstance(weight, spmdx.ShardedTensor)
    net(numbers(2, 8).to("spmdx")).sum().backward()
    assert spmdx.get_sharding(weight.grad).spec == ("model", None)


def test_clearing_gives_the_old_class_back(mesh):
    x = marked(mesh, ("data",), 8)
    p = spmdx.mark_sharding(torch.nn.Parameter(numbers(8).to("spmdx")), mesh, ("data",))
    assert type(spmdx.clear_sharding(x)) is torch.Tensor
    assert type(spmdx.clear_sharding(p)) is torch.nn.Parameter
    assert spmdx.get_annotation(x) is None and torch.equal(x.cpu(), numbers(8))


def test_marking_again_reshards(mesh):
    x = marked(mesh, ("data", None), 8, 8)
    spmdx.mark_sharding(x, mesh, (None, "model"))
    assert x.partition_spec == (None, "model")
    assert [tuple(s.data.shape) for s in x.local_shards] == [(8, 4)] * 8
    assert torch.equal(x.full_tensor(), numbers(8, 8))


def test_nothing_is_known_where_nothing_was_said():
    assert spmdx.get_sharding(numbers(4)) is None
    assert spmdx.get_sharding(numbers(4).to("spmdx")) is None
    assert spmdx.get_annotation(numbers(4).to("spmdx")) is None


def test_a_traced_value_tells_its_sharding_before_anything_runs(mesh):
    x, w = marked(mesh, ("data", None), 8, 4), marked(mesh, (None, "model"), 4, 6)
    y = x @ w
    spmdx.debug.reset_counters()
    assert spmdx.get_sharding(y).spec == ("data", "model")
    assert spmdx.debug.counters()["steps"] == 0
    assert torch.equal(y.cpu(), numbers(8, 4) @ numbers(4, 6))


def test_pieces_go_in_and_come_out(mesh):
    pieces = [p for p in numbers(10, 2).split([3, 3, 3, 1]) for _ in range(2)]
    x = spmdx.ShardedTensor.from_local_shards(pieces, mesh, ("data", None))
    assert torch.equal(x.full_tensor(), numbers(10, 2))
    x.load_local_shards_([p * 2 for p in pieces])
    assert torch.equal(x.full_tensor(), numbers(10, 2) * 2)
    assert x.partition_spec == ("data", None)


def test_redistribute_takes_specs_and_placements(mesh):
    from torch.distributed.tensor import Replicate, Shard

    x = marked(mesh, ("data", None), 8, 8)
    assert x.placements == (Shard(0), Replicate())
    y = x.redistribute(mesh, [Replicate(), Shard(1)])
    assert y.partition_spec == (None, "model") and x.partition_spec == ("data", None)
    assert torch.equal(y.full_tensor(), numbers(8, 8))
    assert torch.equal(x.redistribute(mesh, (None, "data")).full_tensor(), numbers(8, 8))


@pytest.mark.parametrize("as_parameter", [False, True])
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies_keep_class_annotation_and_values(mesh, way, as_parameter):
    x = numbers(8, 4).to("spmdx")
    x = torch.nn.Parameter(x) if as_parameter else x
    spmdx.mark_sharding(x, mesh, ("data", None))
    x.note = "kept"
    if way == "deepcopy":
        y = copy.deepcopy(x)
    elif way == "pickle":
        y = pickle.loads(pickle.dumps(x))
    else:
        file = io.BytesIO()
        torch.save(x, file)
        y = torch.load(io.BytesIO(file.getvalue()))
    assert type(y) is type(x) and y.requires_grad == as_parameter and y.note == "kept"
    assert y is not x and y.partition_spec == ("data", None)
    assert torch.equal(y.full_tensor(), numbers(8, 4))


def test_a_saved_sharded_tensor_loads_on_the_cpu(mesh):
    file = io.BytesIO()
    torch.save({"w": marked(mesh, ("data",), 8)}, file)
    loaded = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")["w"]
    assert type(loaded) is torch.Tensor and torch.equal(loaded, numbers(8))


def test_a_module_copies_with_its_annotations_and_ties(mesh):
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).to("spmdx")
    net[1].weight = net[0].weight
    spmdx.mark_sharding(net[0].weight, mesh, ("model", None))
    twin = copy.deepcopy(net)
    assert twin[0].weight is twin[1].weight and twin[0].weight is not net[0].weight
    assert twin[0].weight.partition_spec == ("model", None)


def test_gradients_get_the_same_sharding_when_asked(mesh):
    x = numbers(8, 4).to("spmdx").requires_grad_()
    y = spmdx.mark_sharding_with_gradients(x * 2, mesh, ("data", None))
    (y * y).sum().backward()
    assert torch.equal(x.grad.cpu(), 8 * numbers(8, 4))


def test_shard_as_takes_what_is_known(mesh):
    a, b = numbers(8).to("spmdx"), marked(mesh, ("data",), 8)
    spmdx.shard_as(a, b)
    assert spmdx.get_annotation(a).spec == ("data",)


def test_patterns_annotate_modules(mesh):
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)).to("spmdx")
    spmdx.nn.shard_module(net, mesh, {"0.weight": ("model", None), "*.weight": (None, "data")})
    assert net[0].weight.partition_spec == ("model", None)
    assert net[1].weight.partition_spec == (None, "data")
    assert type(net[0].bias) is torch.nn.Parameter


@pytest.fixture(autouse=True)
def _own_steps():
    """Every test begins with nothing pending, so that none sees another's mesh."""
    spmdx.sync(wait=True)


def test_sync_waits_and_steps_are_counted(mesh):
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    with spmdx.step():
        x = numbers(4).to("spmdx") + 1
    spmdx.sync(wait=True)
    counters = spmdx.debug.counters()
    assert sorted(counters) == [
        "calls_kept",
        "collectives",
        "fallback_ops",
        "implicit_syncs",
        "native_collectives",
        "ops_recorded",
        "plan_bytes_kept",
        "plan_cache_hits",
        "plans_compiled",
        "plans_kept",
        "plans_searched",
        "reshard_plans_kept",
        "shardings_kept",
        "steps",
        "steps_of_readers",
        "steps_replayed",
        "trace_bytes",
        "wire_bytes",
    ]
    assert counters["steps"] == 1 and counters["ops_recorded"] >= 1
    assert torch.equal(x.cpu(), numbers(4) + 1)


def test_a_drawing_has_a_cell_for_every_part(mesh):
    text = io.StringIO()
    table = spmdx.visualize_sharding(marked(mesh, ("data", "model"), 8, 4), file=text)
    assert (table.row_count, len(table.columns)) == (4, 2)
    assert all(str(d) in text.getvalue() for d in range(8))
    pair = ((8,), spmdx.get_sharding(marked(mesh, ("model",), 8)))
    table = spmdx.visualize_sharding(pair, file=io.StringIO())
    assert (table.row_count, len(table.columns)) == (1, 2)


def test_values_that_have_nothing_to_do_with_each_other_may_lie_on_two_meshes():
    meshes = [
        spmdx.Mesh(range(8), (4, 2), ("data", "model")),
        spmdx.Mesh([5, 3, 1], (3,), ("z",)),
    ]
    xs = [torch.arange(21.0).reshape(7, 3) + i for i in range(2)]
    held = []
    for mesh, x in zip(meshes, xs, strict=True):
        w = torch.nn.Parameter(torch.ones(3, 3).to("spmdx"))
        spmdx.mark_sharding(w, mesh, (mesh.axis_names[0], None))
        y = spmdx.mark_sharding(x.to("spmdx"), mesh, (mesh.axis_names[0], None)) @ w
        y.sum().backward()
        held.append((mesh, x, w, y))
    plain = torch.zeros(2).to("spmdx") + 1
    for mesh, _, _, y in held:
        report = spmdx.explain(y)
        assert report.mesh == str(mesh)
    spmdx.mark_step()
    for mesh, x, w, y in held:
        assert spmdx.get_sharding(y).mesh == mesh
        assert torch.equal(y.cpu(), x @ torch.ones(3, 3))
        assert torch.equal(w.grad.cpu(), x.sum(0)[:, None].expand(3, 3))
    assert plain.tolist() == [1.0, 1.0]
