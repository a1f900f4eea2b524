# SPDX-License-Identifier: Apache-2.0
"""The global mesh counts wherever none is given; axes of size 1 stay in what was written."""

import copy
import pickle

import pytest
import spmdx
import torch
from torch.distributed.tensor import Replicate, Shard


@pytest.fixture
def mesh():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    made = spmdx.Mesh(range(8), (4, 2), ("fsdp", "model"))
    spmdx.set_global_mesh(made)
    yield made
    spmdx.set_global_mesh(None)


def here(*shape):
    return torch.ones(*shape).to("spmdx")


def test_annotations_lie_on_the_global_mesh(mesh):
    x = spmdx.mark_sharding(here(8, 4), partition_spec=("fsdp", None))
    y = spmdx.mark_sharding_with_gradients(here(8, 4), None, ("fsdp", None))
    net = spmdx.nn.shard_module(torch.nn.Linear(4, 8).to("spmdx"), plan={"weight": ("fsdp", None)})
    whole = spmdx.fully_shard(torch.nn.Linear(4, 8).to("spmdx"))
    pieces = spmdx.ShardedTensor.from_local_shards(
        [torch.ones(1, 2)] * 8, spec=(("fsdp", "model"), None)
    )
    theirs = spmdx.distribute_tensor(torch.ones(8, 4), None, [Shard(0), Replicate()])
    for tensor in (x, y, net.weight, whole.weight, pieces, theirs):
        assert tensor.mesh == mesh


@pytest.mark.parametrize(
    "after", [None, ([*range(7, -1, -1)], (4, 2)), (range(8), (2, 4)), (range(4), (2, 2))], ids=str
)
def test_a_gradient_is_marked_as_the_call_said_whatever_the_mesh_and_the_spec_are_by_then(
    mesh, after
):
    x = here(8, 4).requires_grad_()
    entries = ["model"]
    spec = [entries, None]
    y = spmdx.mark_sharding_with_gradients(x * 2, None, spec)
    seen = []
    y.register_hook(seen.append)
    spmdx.set_global_mesh(after and spmdx.Mesh(*after, mesh.axis_names))
    spec[1], entries[0] = "model", "fsdp"
    y.square().sum().backward()
    assert seen[0].mesh == mesh and spmdx.get_annotation(seen[0]).spec == ("model", None)
    assert (x.grad.cpu() == 8).all()


def test_batches_and_manual_regions_lie_on_the_global_mesh(mesh):
    spec = spmdx.data.ShardingSpec(partition_spec=("fsdp",))
    assert spec.mesh is mesh and spmdx.data.batch_shard(partition_spec=("fsdp",)) == (1, 0)
    double = spmdx.shard_map(lambda x: x * 2, None, (("fsdp", None),), ("fsdp", None))
    assert double(here(8, 4)).sum().item() == 64


@pytest.mark.parametrize(
    "wanted",
    [
        lambda: spmdx.mark_sharding(here(4), partition_spec=("data",)),
        lambda: spmdx.fully_shard(torch.nn.Linear(4, 4).to("spmdx")),
        lambda: spmdx.data.ShardingSpec(partition_spec=("data",)),
        lambda: spmdx.shard_map(lambda x: x, None, (None,), (None,)),
    ],
)
def test_without_one_a_mesh_has_to_be_given(wanted):
    assert spmdx.get_global_mesh() is None
    with pytest.raises(spmdx.ShardingError, match="no mesh is given, and there is no global one"):
        wanted()


def test_a_strategy_that_nobody_chooses_is_refused():
    spmdx.runtime.use_spmd()
    with pytest.raises(spmdx.ShardingError, match=r"test_global_mesh\.py:\d+: use_spmd: auto=True"):
        spmdx.runtime.use_spmd(auto=True)


@pytest.mark.parametrize(
    "spec, named",
    [
        (("fsdp", "one"), ("fsdp", "one")),
        ((0, 1), ("fsdp", "one")),
        ((("one", "fsdp"), None), (("one", "fsdp"), None)),
        ((None, "one"), (None, "one")),
    ],
)
def test_axes_of_size_one_stay_in_what_was_written(mesh, spec, named):
    long = spmdx.Mesh(range(8), (8, 1), ("fsdp", "one"))
    x = spmdx.mark_sharding(here(8, 4), long, spec)
    want = spmdx.PartitionSpec(*named)
    assert x.partition_spec == want and spmdx.get_annotation(x).spec == want
    spmdx.mark_step()
    for other in (x.clone(), x.detach(), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (other.cpu() == 1).all()
    assert copy.deepcopy(x).partition_spec == want
    assert pickle.loads(pickle.dumps(x)).partition_spec == want
    assert x.partition_spec == want
