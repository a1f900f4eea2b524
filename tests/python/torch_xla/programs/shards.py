# SPDX-License-Identifier: Apache-2.0
"""XLAShard: all of one shape, padded with zeros, with the indices of what is not padding."""

import math

import torch
import torch_xla.distributed.spmd as xs
from common import grid, line, refused, same


def shards_are_padded_and_say_what_they_hold(devices):
    for size in (1, 5, 8, 9):
        x = torch.randn(size, 3)
        marked = xs.mark_sharding(x.to("xla"), line(devices), (0, None))
        part, joined = math.ceil(size / devices), torch.zeros(size, 3)
        assert len(marked.local_shards) == devices
        for number, shard in enumerate(marked.local_shards):
            rows = max(0, min(part, size - number * part))
            assert shard.data.shape == (part, 3) and shard.unpadded_data.shape == (rows, 3)
            assert not shard.data[rows:].any() and shard.data.device.type == "cpu"
            assert shard.replica_id == 0 and shard.shard_device.endswith(f":{number}")
            joined[tuple(shard.indices)] = shard.unpadded_data
        assert torch.equal(joined, x)


def shards_of_several_axes_are_those_of_one(devices):
    mesh = grid(devices)
    for size in (13, 5, 9):
        x = torch.randn(size, 3)
        one = xs.mark_sharding(x.to("xla"), line(devices), (0, None)).local_shards
        both = xs.mark_sharding(x.to("xla"), mesh, (("data", "model"), None))
        for shard, other in zip(both.local_shards, one, strict=True):
            assert torch.equal(shard.data, other.data) and shard.indices == other.indices
        loaded = both.local_shards
        for shard in loaded:
            shard.unpadded_data = shard.unpadded_data * 3
        both.load_local_shards_(loaded)
        same(both.global_tensor, x * 3)


def replicas_are_numbered(devices):
    x = torch.randn(4, 6)
    whole = xs.mark_sharding(x.to("xla"), line(devices), (None, None))
    assert [s.replica_id for s in whole.local_shards] == list(range(devices))
    assert all(s.indices is ... and torch.equal(s.data, x) for s in whole.local_shards)
    mesh = grid(devices)
    rows, columns = mesh.mesh_shape
    if rows > 1 and columns > 1:
        some = xs.mark_sharding(x.to("xla"), mesh, (0, None))
        assert [s.replica_id for s in some.local_shards] == list(range(columns)) * rows
        for shard in some.local_shards:
            assert torch.equal(shard.data, x[tuple(shard.indices)])


def shards_are_loaded_back(devices):
    for size in (5, 8):
        x = torch.randn(size, 3)
        marked = xs.mark_sharding(x.to("xla"), line(devices), (0, None))
        loaded = marked.local_shards
        for shard in loaded:
            shard.unpadded_data = -shard.unpadded_data
        marked.load_local_shards_(loaded)
        same(marked.global_tensor, -x)
        assert f"devices=[{devices},1]" in marked.sharding_spec


def what_does_not_fit_is_refused(devices):
    x = torch.randn(9, 3)
    marked = xs.mark_sharding(x.to("xla"), line(devices), (0, None))
    shards = marked.local_shards
    with refused(RuntimeError):
        marked.load_local_shards_(shards[:-1])
    shards[0].data = shards[0].data[:, :2]
    with refused(RuntimeError):
        marked.load_local_shards_(shards)
    whole = xs.mark_sharding(x.to("xla"), line(devices), (None, None))
    with refused(RuntimeError, "replicated"):
        whole.load_local_shards_(whole.local_shards)
    same(marked.global_tensor, x)


def results_have_shards_too_once_they_are_computed(devices):
    import torch_xla

    t = torch.arange(16.0).reshape(8, 2).to("xla")
    xs.mark_sharding(t, line(devices), (0, None))
    result = t * 2
    torch_xla.sync()
    wrapped = xs.wrap_if_sharded(result)
    total = sum(float(s.unpadded_data.sum()) for s in wrapped.local_shards if s.replica_id == 0)
    assert total == 240.0
    with refused(ValueError, "mesh_shape must be specified"):
        _ = wrapped._spec
