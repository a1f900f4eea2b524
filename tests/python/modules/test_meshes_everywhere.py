# SPDX-License-Identifier: Apache-2.0
"""Every public function that takes a mesh takes a DeviceMesh, slices of one, and Sharding pairs."""

import importlib
import inspect

import pytest
import spmdx
import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

MODULES = [f"spmdx.{m}" for m in ("checkpoint", "collectives", "data", "debug", "nn", "rules")]
MODULES += ["spmdx", "spmdx.runtime", "spmdx.topology"]
X = torch.arange(48.0).reshape(8, 6)


class DeviceMeshLike:
    """What spmdx reads of a DeviceMesh, which needs a process for each device."""

    def __init__(self, shape, names, root=None):
        self.mesh = torch.arange(torch.Size(shape).numel()).reshape(shape)
        self.mesh_dim_names = names
        self._root = root

    def _get_root_mesh(self):
        return self._root or self


def x():
    return X.to("spmdx")


def layer():
    return nn.Linear(6, 8, bias=False).to("spmdx")


def marked_gradient(mesh):
    y = spmdx.mark_sharding_with_gradients(x().requires_grad_() * 2, mesh, ("data", None))
    return spmdx.get_annotation(y)


def globally(mesh):
    spmdx.set_global_mesh(mesh)
    try:
        return spmdx.get_global_mesh()
    finally:
        spmdx.set_global_mesh(None)


def mapped(mesh):
    run = spmdx.shard_map(lambda a: a * 2, mesh, (("data", None),), ("data", None))
    return run(x()).tolist()


def moved(mesh):
    start = spmdx.mark_sharding(x(), spmdx.get_1d_mesh("i"), ("i", None))
    return start.redistribute(mesh, ("data", None)).sharding


def pieces(mesh):
    parts = [part for part in X.chunk(4) for _ in range(2)]
    return spmdx.ShardedTensor.from_local_shards(parts, mesh, ("data", None)).sharding


def loaded(mesh):
    (batch,) = spmdx.data.device_loader([X], mesh=mesh)
    return batch.sharding


def sharded(mesh):
    return spmdx.nn.shard_module(layer(), mesh, {"weight": ("model", None)}).weight.sharding


def planned(mesh):
    style = ColwiseParallel()
    return spmdx.nn.parallelize_module(layer(), mesh, style, axis="model").weight.sharding


def piped(mesh):
    return spmdx.nn.pipeline(layer(), mesh, "data", {"*": 1}).weight.sharding


def cut_in_stage_three(mesh):
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return spmdx.nn.zero(model, optimizer, mesh, "data", stage=3).weight.sharding


CALLS = {
    "Sharding": lambda mesh: spmdx.Sharding(mesh, ("data", ...)),
    "ShardedTensor.from_local_shards": pieces,
    "ShardedTensor.redistribute": moved,
    "ShardingSpec": lambda mesh: spmdx.data.ShardingSpec(mesh, ("data",)),
    "Mesh.from_device_mesh": spmdx.Mesh.from_device_mesh,
    "batch_shard": lambda mesh: spmdx.data.batch_shard(mesh, ("data",)),
    "device_loader": loaded,
    "distribute_module": lambda mesh: spmdx.distribute_module(layer(), mesh).weight.sharding,
    "distribute_tensor": lambda mesh: spmdx.distribute_tensor(x(), mesh).sharding,
    "fully_shard": lambda mesh: spmdx.fully_shard(layer(), mesh, "data").weight.sharding,
    "mark_sharding": lambda mesh: spmdx.mark_sharding(x(), mesh, ("data", "model")).sharding,
    "mark_sharding_with_gradients": marked_gradient,
    "mark_stage": lambda mesh: spmdx.mark_stage(x(), mesh, 1, "data").sharding,
    "parallelize_module": planned,
    "pipeline": piped,
    "set_global_mesh": globally,
    "shard_map": mapped,
    "shard_module": sharded,
    "zero": cut_in_stage_three,
}


def takers():
    """The public functions, classes and methods with an argument for a mesh."""
    found = set()
    for module in map(importlib.import_module, MODULES):
        for name, value in vars(module).items():
            home = getattr(value, "__module__", None) or ""
            if name.startswith("_") or not home.startswith("spmdx") or "._" in home:
                continue
            if inspect.isclass(value):
                methods = inspect.getmembers(value, callable)
                found |= {f"{name}.{n}" for n, m in methods if n[0] != "_" and takes_mesh(m)}
            if callable(value) and takes_mesh(value):
                found.add(name)
    # Inherited; a helper that modules import; the text of a mesh in a report.
    return found - {"HybridMesh.from_device_mesh", "require_mesh", "Report"}


def takes_mesh(function):
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return bool({"mesh", "device_mesh"} & set(names))


def test_no_function_that_takes_a_mesh_is_left_out():
    assert takers() == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_device_mesh_does_what_a_mesh_does(name):
    ours = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
    assert CALLS[name](DeviceMeshLike((4, 2), ("data", "model"))) == CALLS[name](ours)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"Mesh.from_device_mesh"}))
def test_a_slice_of_a_device_mesh_stands_for_the_whole(name):
    root = DeviceMeshLike((4, 2), ("data", "model"))
    ours = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
    assert CALLS[name](DeviceMeshLike((4,), ("data",), root)) == CALLS[name](ours)


def test_an_axis_of_a_slice_is_the_one_that_counts():
    root = DeviceMeshLike((4, 2), ("data", "model"))
    data, model = DeviceMeshLike((4,), ("data",), root), DeviceMeshLike((2,), ("model",), root)
    net = nn.Sequential(layer()).to("spmdx")
    spmdx.nn.parallelize_module(net, model, {"0": ColwiseParallel()})
    assert spmdx.fully_shard(net, data)[0].weight.partition_spec == (("model", "data"), None)
    wide = nn.Linear(8, 8).to("spmdx")
    spmdx.nn.parallelize_module(wide, model, ColwiseParallel())
    assert spmdx.fully_shard(wide, data).weight.partition_spec == ("model", "data")
    placed = spmdx.distribute_tensor(x(), model, [Shard(1)])
    assert placed.partition_spec == (None, "model")
    assert placed.redistribute(data, [Shard(-2)]).partition_spec == ("data", None)
    with pytest.raises(spmdx.ShardingError, match="Write 1 of Shard"):
        spmdx.distribute_tensor(x(), model, [Shard(1), Replicate()])


def test_axes_that_were_merged_into_a_part_are_refused():
    root = DeviceMeshLike((2, 2, 2), ("a", "b", "c"))
    with pytest.raises(spmdx.ShardingError, match="lead to 4 of 8 devices"):
        spmdx.mark_sharding(x(), DeviceMeshLike((4,), ("a_b",), root), ("a_b", None))
    flat = DeviceMeshLike((8,), ("all",), root)
    assert spmdx.mark_sharding(x(), flat, ("all", None)).partition_spec == ("all", None)


PAIRS = {
    "mark_sharding": lambda *pair: spmdx.mark_sharding(x(), *pair).sharding,
    "mark_sharding_with_gradients": lambda *pair: (
        spmdx.mark_sharding_with_gradients(x(), *pair).sharding
    ),
    "redistribute": lambda *pair: (
        spmdx.mark_sharding(x(), spmdx.get_1d_mesh("i"), ("i", None)).redistribute(*pair).sharding
    ),
    "from_local_shards": lambda *pair: (
        spmdx.ShardedTensor.from_local_shards(
            [part for part in X.chunk(4) for _ in range(2)], *pair
        ).sharding
    ),
    "ShardingSpec": lambda *pair: spmdx.data.ShardingSpec(*pair),
    "batch_shard": lambda *pair: spmdx.data.batch_shard(*pair),
}


@pytest.mark.parametrize("spec", [("data", None), ("data", ...)])
@pytest.mark.parametrize("name", PAIRS)
def test_a_sharding_goes_where_mesh_and_spec_go(name, spec):
    mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
    pair = spmdx.Sharding(mesh, spec)
    assert PAIRS[name](pair) == PAIRS[name](mesh, spec)
    with pytest.raises(spmdx.ShardingError, match="is given, and a partition spec besides"):
        PAIRS[name](pair, spec)


def test_shardings_go_into_plans_and_out_of_placements():
    mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
    net = spmdx.nn.shard_module(layer(), None, {"*": spmdx.Sharding(mesh, ("data", ...))})
    assert net.weight.sharding == spmdx.Sharding(mesh, ("data", None))
    placed = spmdx.distribute_tensor(x(), spmdx.Sharding(mesh, (..., "model")))
    assert placed.placements == (Replicate(), Shard(1))
    with pytest.raises(spmdx.ShardingError, match="another mesh besides"):
        other = spmdx.Sharding(spmdx.get_1d_mesh(), (...,))
        spmdx.nn.shard_module(layer(), mesh, {"*": other})
    with mesh:
        assert spmdx.Sharding(None, ("data",)).mesh == mesh
