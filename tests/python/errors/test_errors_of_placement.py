# SPDX-License-Identifier: Apache-2.0
"""The whole messages about placements of tensors and modules."""

import numpy as np
import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, grid, marked, message_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import Partial, Replicate, Shard


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def a_net():
    return torch.nn.Linear(4, 4).to("spmdx")


def fully_sharded(module, mesh=None):
    return spmdx.fully_shard(module, mesh or grid(), "i")


def planned(plan, module=None):
    return spmdx.nn.shard_module(module or a_net(), grid(), plan)


def with_gradients(tensor, spec=("i",)):
    return spmdx.mark_sharding_with_gradients(tensor, grid(), spec)


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
        "spec_of_a_set",
        lambda: marked({"i", "j"}),
        "HERE: mark_sharding: the partition spec is a set. Expected a tuple with one entry a dim. "
        "Write ('i', None).",
    ),
    (
        "spec_of_a_dict",
        lambda: marked({"i": "j"}),
        "HERE: mark_sharding: the partition spec is a dict. Expected a tuple with one entry a dim. "
        "Write ('i', None).",
    ),
    (
        "spec_of_an_iterator",
        lambda: marked(iter(("i", None))),
        "HERE: mark_sharding: the partition spec is a tuple_iterator. Expected a tuple with one "
        "entry a dim. Write ('i', None).",
    ),
    (
        "spec_of_an_array",
        lambda: marked(np.array([0, 1])),
        "HERE: mark_sharding: the partition spec is a ndarray. Expected a tuple with one entry a "
        "dim. Write ('i', None).",
    ),
    (
        "spec_for_no_dims",
        lambda: spmdx.mark_sharding(device(4).sum(), grid(), "i"),
        "HERE: mark_sharding: the partition spec is 'i'. Expected a tuple with one entry a dim. "
        "Write ().",
    ),
    (
        "spec_without_axes",
        lambda: marked(2.5, (4,), spmdx.Mesh([0], (), ())),
        "HERE: mark_sharding: the partition spec is a float. Expected a tuple with one entry a "
        "dim. Write (None,).",
    ),
    (
        "large_index",
        lambda: marked((10**30, None)),
        "HERE: mark_sharding: the partition spec (1000000000000000000000000000000, None) has the "
        "entry 1000000000000000000000000000000. Expected None, an axis name, an axis index, or a "
        "tuple of them. Write ('data', None).",
    ),
    (
        "without_a_shape",
        lambda: spmdx.mark_sharding(torch.nn.LazyLinear(4).to("spmdx").weight, grid(), ()),
        "HERE: mark_sharding: tensor has no shape yet. Expected a parameter that has one. Call the "
        "lazy module once first, or give it its sizes.",
    ),
    (
        "fake",
        lambda: spmdx.mark_sharding(FakeTensorMode().from_tensor(device(4)), grid(), ("i",)),
        "HERE: mark_sharding: tensor is a FakeTensor, which stands for other tensors or has no "
        "elements. Expected a tensor of the device itself. Pass the one that it stands for.",
    ),
    (
        "number_with_gradients",
        lambda: with_gradients(3),
        "HERE: mark_sharding_with_gradients: the first argument is a int. Expected a torch.Tensor "
        "on device 'spmdx'. Pass a tensor, for a module one of its parameters.",
    ),
    (
        "spec_with_gradients",
        lambda: with_gradients(device(4), ()),
        "HERE: mark_sharding_with_gradients: tensor has rank 1, but its partition spec () has 0 "
        "entries. Expected 1 entry, one for each dim. Write (None,).",
    ),
    (
        "shard_as_a_number",
        lambda: spmdx.shard_as(device(4), 3),
        "HERE: shard_as: the second argument is a int. Expected a torch.Tensor on device 'spmdx'. "
        "Pass a tensor, for a module one of its parameters.",
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
        "spec_for_placements",
        lambda: distributed("i", None),
        "HERE: distribute_tensor: the placements are ('i', None). Expected Shard(dim) or "
        "Replicate() for every axis of Mesh(i=4, j=2). Write them so, or give a partition spec to "
        "spmdx.mark_sharding.",
    ),
    (
        "no_placements",
        lambda: spmdx.distribute_tensor(device(4), grid(), 0),
        "HERE: distribute_tensor: the placements are 0. Expected Shard(dim) or Replicate() for "
        "every axis of Mesh(i=4, j=2). Write them so, or give a partition spec to "
        "spmdx.mark_sharding.",
    ),
    (
        "distributed_number",
        lambda: spmdx.distribute_tensor(3, grid(), [Shard(0), Replicate()]),
        "HERE: distribute_tensor: the first argument is a int. Expected a torch.Tensor. Pass a "
        "tensor, for a module one of its parameters.",
    ),
    (
        "some_redistributed",
        lambda: marked(("i",), (8,)).redistribute(grid(), [Shard(0), None]),
        "HERE: redistribute: the placements are [Shard(dim=0), None]. Expected Shard(dim) or "
        "Replicate() for every axis of Mesh(i=4, j=2). Write them so, or give a partition spec to "
        "spmdx.mark_sharding.",
    ),
    (
        "redistributed_to_nothing",
        lambda: marked(("i",), (8,)).redistribute(grid(), None),
        "HERE: redistribute: the partition spec is None. Expected a tuple with one entry a dim. "
        "Write (None,).",
    ),
    (
        "redistributed_to_no_axis",
        lambda: marked(("i",), (8,)).redistribute(grid(), (2,)),
        "HERE: redistribute: dim 0 of tensor is to be cut by axis 2, but Mesh(i=4, j=2) has 2 "
        "axes. Expected an index from 0 to 1 or a name of an axis. Write 1 or 'j' instead of 2.",
    ),
    (
        "fully_shard_a_number",
        lambda: fully_sharded(3),
        "HERE: fully_shard: the first argument is a int. Expected a torch.nn.Module. Pass a model "
        "or a part of one.",
    ),
    (
        "fully_shard_without_a_shape",
        lambda: fully_sharded(torch.nn.Sequential(a_net(), torch.nn.LazyLinear(3))),
        "HERE: fully_shard: 1.weight has no shape yet. Expected a parameter that has one. Call the "
        "lazy module once first, or give it its sizes.",
    ),
    (
        "fully_shard_cpu",
        lambda: fully_sharded(torch.nn.Sequential(a_net(), torch.nn.Linear(4, 4))),
        "HERE: fully_shard: 1.weight is on device 'cpu'. Expected a module on device 'spmdx'. Move "
        'it there first: module.to("spmdx").',
    ),
    (
        "fully_shard_no_axes",
        lambda: fully_sharded(a_net(), spmdx.Mesh([0], (), ())),
        "HERE: fully_shard: Mesh() has no axis 'i'. Expected one of (). Give the mesh an axis.",
    ),
    (
        "plan_for_a_number",
        lambda: planned({}, 3),
        "HERE: shard_module: the first argument is a int. Expected a torch.nn.Module. Pass a model "
        "or a part of one.",
    ),
    (
        "plan_of_a_number",
        lambda: planned(3),
        "HERE: shard_module: the plan is a int. Expected a dict from patterns of names to "
        "partition specs. Write {'*.weight': ('data', None)}.",
    ),
    (
        "plan_for_cpu",
        lambda: planned({"*": ()}, torch.nn.Linear(4, 4)),
        "HERE: shard_module: weight is on device 'cpu'. Expected a module on device 'spmdx'. Move "
        'it there first: module.to("spmdx").',
    ),
    (
        "plan_of_no_axis",
        lambda: planned({"bias": ("k",)}),
        "HERE: shard_module: dim 0 of bias is to be cut by axis 'k', which Mesh(i=4, j=2) does not "
        "have. Expected one of 'i', 'j'. Write one of these names, or None to leave the dim whole.",
    ),
    (
        "pattern_of_a_number",
        lambda: planned({3: ()}),
        "HERE: shard_module: the pattern 3 matches no parameter or buffer. Expected names like "
        "'weight', 'bias'. Mend the pattern, or drop it.",
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


@pytest.mark.parametrize("marks", [fully_sharded, lambda net: planned({"*": (None, "i")}, net)])
def test_a_module_that_cannot_be_marked_whole_is_not_marked(marks):
    net = torch.nn.Sequential(a_net(), torch.nn.Linear(4, 4))
    assert "is on device 'cpu'" in message_of(spmdx.ShardingError, lambda: marks(net))
    net = a_net()
    unfit = {"weight": ("i", None), "bias": ("i", None)}
    assert "entries" in message_of(spmdx.ShardingError, lambda: planned(unfit, net))
    assert [spmdx.get_annotation(p) for p in net.parameters()] == [None, None]
