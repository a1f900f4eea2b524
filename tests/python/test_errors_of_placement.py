# SPDX-License-Identifier: Apache-2.0
"""The whole messages about placements, and about questions to tensors."""

import warnings

import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, grid, message_of
from torch.distributed.tensor import Partial, Replicate, Shard


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def marked(spec, shape=(8, 8), mesh=None):
    return spmdx.mark_sharding(device(*shape), mesh or grid(), spec)


def unmarked():
    """A ShardedTensor whose annotation went away with its elements, which had as many dims."""
    x = marked(("i", None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.data = device(8)
    return x


def on_cpu():
    return torch.zeros(2).as_subclass(spmdx.ShardedTensor)


def a_net():
    return torch.nn.Linear(4, 4).to("spmdx")


def distributed(*placements):
    return spmdx.distribute_tensor(device(4), grid(), placements)


SPECS = [
    (
        "axis_of_no_axes",
        lambda: marked(("a",), (4,), spmdx.Mesh([0], (), ())),
        "HERE: mark_sharding: dim 0 of tensor is to be cut by axis 'a', which Mesh() does not "
        "have. Expected None: the mesh has no axes. Write one of these names, or None to leave "
        "the dim whole.",
    ),
    (
        "index_of_no_axes",
        lambda: marked((0,), (4,), spmdx.Mesh([0], (), ())),
        "HERE: mark_sharding: dim 0 of tensor is to be cut by axis 0, but Mesh() has 0 axes. "
        "Expected no index: the mesh has no axes. Write None.",
    ),
    (
        "axis_twice_in_a_dim",
        lambda: marked((("i", "i"), None)),
        "HERE: mark_sharding: axis 'i' cuts tensor twice in dim 0: (('i', 'i'), None). Expected "
        "every axis at most once. Write ('i', None).",
    ),
    (
        "no_part_of_an_axis",
        lambda: marked(("i:(3)2", None)),
        "HERE: mark_sharding: 'i:(3)2' is not a part of axis 'i' of Mesh(i=4, j=2). Expected "
        "name:(p)k where p and p·k are products of the first prime factors of 4. Write 'i' for "
        "the whole axis.",
    ),
    (
        "part_that_does_not_divide",
        lambda: marked(("i:(2)2", None), (3, 1)),
        "HERE: mark_sharding: dim 0 of tensor, of size 3, is to be cut by a part of an axis that "
        "does not divide it: 'i:(2)2'. Expected whole axes, or parts that divide evenly. Write "
        "the whole axis, or None.",
    ),
    (
        "shard_as_ranks",
        lambda: spmdx.shard_as(device(4), device(4, 4)),
        "HERE: shard_as: the tensors have rank 1 and 2. Expected the same rank. Reshape one of "
        "them first.",
    ),
    (
        "shard_as_unknown",
        lambda: spmdx.shard_as(device(4), device(4)),
        "HERE: shard_as: nothing is known of the sharding of either tensor. Expected one of them "
        "to have one. Call spmdx.mark_sharding on it first.",
    ),
    (
        "shard_as_cpu",
        lambda: spmdx.shard_as(device(4), torch.zeros(4)),
        "HERE: shard_as: tensor is on device 'cpu'. Expected a tensor on device 'spmdx'. Move it "
        'there first: tensor = tensor.to("spmdx").',
    ),
    (
        "too_few_placements",
        lambda: distributed(Shard(0)),
        "HERE: distribute_tensor: 1 placements for Mesh(i=4, j=2). Expected one for every axis of"
        " the mesh. Write 2 of Shard(dim) and Replicate().",
    ),
    (
        "placement_of_no_dim",
        lambda: distributed(Shard(1), Replicate()),
        "HERE: distribute_tensor: the placement S(1) of axis 'i' does not fit a tensor of rank 1."
        " Expected Replicate() or Shard(dim) with a dim of the tensor. Write Replicate().",
    ),
    (
        "partial_placement",
        lambda: distributed(Replicate(), Partial()),
        "HERE: distribute_tensor: the placement P(sum) of axis 'j' does not fit a tensor of rank "
        "1. Expected Replicate() or Shard(dim) with a dim of the tensor. Reduce the values first.",
    ),
    (
        "too_many_redistributed",
        lambda: marked(("i",), (8,)).redistribute(grid(), [Shard(0)]),
        "HERE: redistribute: 1 placements for Mesh(i=4, j=2). Expected one for every axis of the "
        "mesh. Write 2 of Shard(dim) and Replicate().",
    ),
    (
        "fully_shard",
        lambda: spmdx.nn.fully_shard(a_net(), grid(), "k"),
        "HERE: fully_shard: Mesh(i=4, j=2) has no axis 'k'. Expected one of ('i', 'j'). Pass "
        "axis='i'.",
    ),
    (
        "fully_shard_no_mesh",
        lambda: spmdx.nn.fully_shard(a_net(), (4, 2)),
        "HERE: fully_shard: the mesh is a tuple. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names).",
    ),
    (
        "distribute_no_mesh",
        lambda: spmdx.distribute_tensor(device(4), None, []),
        "HERE: distribute_tensor: no mesh is given, and there is no global one. Expected a "
        "spmdx.Mesh. Pass one, or call spmdx.set_global_mesh first.",
    ),
    (
        "redistribute_no_mesh",
        lambda: marked(("i",), (8,)).redistribute((4, 2), (None,)),
        "HERE: redistribute: the mesh is a tuple. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names).",
    ),
]


@pytest.mark.parametrize("call, message", cases(SPECS))
def test_a_wrong_placement_is_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message


QUESTIONS = [
    (
        "minor_axis_first",
        lambda: marked((("j", "i"), None)).placements,
        "HERE: placements: DTensor placements cannot say Sharding(Mesh(i=4, j=2), "
        "PartitionSpec(('j', 'i'), None)). Expected whole axes, major first. Read .partition_spec"
        " instead.",
    ),
    (
        "part_of_an_axis",
        lambda: marked(("i:(2)2", None)).placements,
        "HERE: placements: DTensor placements cannot say Sharding(Mesh(i=4, j=2), "
        "PartitionSpec('i:(2)2', None)). Expected whole axes, major first. Read .partition_spec "
        "instead.",
    ),
    (
        "mesh_of_unmarked",
        lambda: unmarked().mesh,
        "HERE: mesh: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "spec_of_unmarked",
        lambda: unmarked().partition_spec,
        "HERE: partition_spec: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "placements_of_unmarked",
        lambda: unmarked().placements,
        "HERE: placements: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "shards_of_unmarked",
        lambda: unmarked().local_shards,
        "HERE: local_shards: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "load_unmarked",
        lambda: unmarked().load_local_shards_([]),
        "HERE: load_local_shards_: the tensor has no sharding. Expected one that was annotated. "
        "Call spmdx.mark_sharding on it first.",
    ),
    (
        "nothing_to_draw",
        lambda: spmdx.visualize_sharding(device(4)),
        "HERE: visualize_sharding: the tensor has no sharding. Expected one that is annotated or "
        "computed from annotated ones. Call spmdx.mark_sharding first.",
    ),
    (
        "explain_cpu",
        lambda: spmdx.explain(torch.zeros(2)),
        "HERE: explain: tensor is on device 'cpu'. Expected a tensor on device 'spmdx'. Move it "
        'there first: tensor = tensor.to("spmdx").',
    ),
    (
        "explain_a_number",
        lambda: spmdx.explain(3),
        "HERE: explain: the first argument is a int. Expected a torch.Tensor on device 'spmdx'. "
        "Pass a tensor, for a module one of its parameters.",
    ),
    (
        "shards_of_cpu",
        lambda: on_cpu().local_shards,
        "spmdx: the tensor is on cpu. Expected a tensor on device 'spmdx'. Move it there first "
        'with .to("spmdx").',
    ),
]


@pytest.mark.parametrize("call, message", cases(QUESTIONS))
def test_what_cannot_be_answered_is_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message
