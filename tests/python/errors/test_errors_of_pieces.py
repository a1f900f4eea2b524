# SPDX-License-Identifier: Apache-2.0
"""The whole messages about the pieces that tensors are made of."""

import copy

import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, grid, message_of
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def shards(count=8, dtype=None):
    return [torch.zeros(2, dtype=dtype) for _ in range(count)]


def joined(pieces, spec=("i",), mesh=None):
    return spmdx.ShardedTensor.from_local_shards(pieces, mesh or grid(), spec)


def loaded(pieces):
    return spmdx.mark_sharding(device(8), grid(), ("i",)).load_local_shards_(pieces)


def freed():
    shard = torch.zeros(2)
    shard.untyped_storage().resize_(0)
    return shard


PIECES = [
    (
        "none",
        lambda: joined([]),
        "HERE: from_local_shards: 0 shards for Mesh(i=4, j=2). Expected one for each of its 8 "
        "devices. Give replicas too, in the order of the mesh's positions.",
    ),
    (
        "a_number",
        lambda: joined(3),
        "HERE: from_local_shards: the shards are a int. Expected a list of tensors, one for each "
        "device. Write [part, …], in the order of the mesh's positions.",
    ),
    (
        "load_a_number",
        lambda: loaded(3),
        "HERE: load_local_shards_: the shards are a int. Expected a list of tensors, one for each "
        "device. Write [part, …], in the order of the mesh's positions.",
    ),
    (
        "on_the_device",
        lambda: joined([device(2)] * 8),
        "HERE: from_local_shards: shard 0 is on spmdx:0. Expected CPU tensors. Call .cpu() on it.",
    ),
    (
        "numbers",
        lambda: joined([2.0] * 8),
        "HERE: from_local_shards: shard 0 is on float. Expected CPU tensors. Call .cpu() on it.",
    ),
    (
        "another_dtype",
        lambda: joined([*shards(7), torch.zeros(2).long()]),
        "HERE: from_local_shards: shard 7 is torch.int64 of rank 1. Expected torch.float32 of "
        "rank 1, as the others. Convert it with .to or .view.",
    ),
    (
        "another_rank",
        lambda: joined([*shards(7), torch.zeros(2, 1)]),
        "HERE: from_local_shards: shard 7 is torch.float32 of rank 2. Expected torch.float32 of "
        "rank 1, as the others. Convert it with .to or .view.",
    ),
    (
        "another_shape",
        lambda: joined([*shards(7), torch.zeros(3)]),
        "HERE: from_local_shards: shard 7 has shape (3,). Expected (2,), its part of (8,) under "
        "('i',). Cut the tensor as torch.chunk does.",
    ),
    (
        "too_long_spec",
        lambda: joined(shards(), ("i", None)),
        "HERE: from_local_shards: the tensor has rank 1, but its partition spec ('i', None) has 2"
        " entries. Expected 1 entry, one for each dim. Write ('i',).",
    ),
    (
        "unknown_axis",
        lambda: joined(shards(), ("k",)),
        "HERE: from_local_shards: dim 0 of the tensor is to be cut by axis 'k', which Mesh(i=4, "
        "j=2) does not have. Expected one of 'i', 'j'. Write one of these names, or None to leave"
        " the dim whole.",
    ),
    (
        "no_mesh",
        lambda: joined(shards(), mesh=(4, 2)),
        "HERE: from_local_shards: the mesh is a tuple. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names).",
    ),
    (
        "sparse",
        lambda: joined([shard.to_sparse() for shard in shards()]),
        "HERE: from_local_shards: shard 0 is a Tensor of layout torch.sparse_coo whose elements do "
        "not all lie in memory. Expected a dense tensor. Call .to_dense() on a sparse one.",
    ),
    (
        "freed",
        lambda: loaded([*shards(7), freed()]),
        "HERE: load_local_shards_: shard 7 is a Tensor of layout torch.strided whose elements do "
        "not all lie in memory. Expected a dense tensor. Call .to_dense() on a sparse one.",
    ),
    (
        "without_data",
        lambda: loaded([FakeTensorMode().from_tensor(shard) for shard in shards()]),
        "HERE: load_local_shards_: shard 0 is a FakeTensor of layout torch.strided whose elements "
        "do not all lie in memory. Expected a dense tensor. Call .to_dense() on a sparse one.",
    ),
    (
        "load_another_dtype",
        lambda: loaded(shards(dtype=torch.int32)),
        "HERE: load_local_shards_: shard 0 is torch.int32 of rank 1. Expected torch.float32 of "
        "rank 1, as the others. Convert it with .to or .view.",
    ),
]


@pytest.mark.parametrize("call, message", cases(PIECES))
@pytest.mark.on_the_cpu("the message names the GPU, too")
def test_pieces_that_do_not_fit_are_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message


def test_a_copy_of_what_autograd_computed_is_refused():
    result = spmdx.mark_sharding(device(8).requires_grad_() * 2, grid(), ("i",))
    assert message_of(RuntimeError, lambda: copy.deepcopy(result)) == (
        "a tensor that autograd computed cannot be deep-copied. Expected a leaf. Copy .detach() "
        "of it."
    )
