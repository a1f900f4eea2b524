# SPDX-License-Identifier: Apache-2.0
"""mark_sharding and its kin: values are those of plain PyTorch, and texts those of XLA."""

import torch
import torch_xla
import torch_xla.distributed.spmd as xs
from common import grid, line, same
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch_xla import _XLAC

SHAPES = ((8, 16), (5, 7), (1, 3), (13, 24))
SPECS = ((0, 1), (1, 0), (None, 1), ("data", None), (("data", "model"), None), (None, None))


def values_are_those_of_plain_pytorch(devices):
    mesh = grid(devices)
    for shape in SHAPES:
        x, w = torch.randn(shape), torch.randn(shape[1], 6)
        for spec in SPECS:
            t, v = x.to("xla"), w.to("xla")
            xs.mark_sharding(t, mesh, spec)
            xs.mark_sharding(v, mesh, (None, "model"))
            same(torch.relu(t @ v).sum(1), torch.relu(x @ w).sum(1))
            same(t.t().softmax(0), x.t().softmax(0))


def gradients_are_those_of_plain_pytorch(devices):
    mesh = grid(devices)
    for rows in (8, 6):
        torch.manual_seed(rows)
        model = torch.nn.Sequential(torch.nn.Linear(7, 12), torch.nn.GELU(), torch.nn.Linear(12, 3))
        x = torch.randn(rows, 7)
        model(x).square().mean().backward()
        wanted = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model.to("xla")
        xs.mark_sharding(model[0].weight, mesh, ("model", None))
        xs.mark_sharding(model[2].weight, mesh, (None, "model"))
        t = x.to("xla")
        xs.mark_sharding(t, mesh, ("data", None))
        model(t).square().mean().backward()
        torch_xla.sync()
        for parameter, want in zip(model.parameters(), wanted, strict=True):
            same(parameter.grad, want)


def it_marks_in_place_and_gives_a_tensor_that_stands_for_it(devices):
    t = torch.arange(24.0).reshape(8, 3).to("xla")
    marked = xs.mark_sharding(t, line(devices), (0, None))
    assert isinstance(marked, xs.XLAShardedTensor) and isinstance(marked, DTensor)
    assert marked.global_tensor is t
    assert _XLAC._get_xla_sharding_spec(t) == marked.sharding_spec
    same((marked + 1).global_tensor, torch.arange(24.0).reshape(8, 3) + 1)
    assert isinstance(marked + 1, xs.XLAShardedTensor)
    assert marked.placements == (Shard(0),)
    whole = xs.mark_sharding(torch.ones(3).to("xla"), line(devices), (None,))
    assert whole.placements == (Replicate(),)


def texts_and_kinds_of_shardings(devices):
    ids = ",".join(map(str, range(devices)))
    mesh = grid(devices)
    rows, columns = mesh.mesh_shape
    both = xs.mark_sharding(torch.ones(4, 4).to("xla"), mesh, (0, 1))
    assert both.sharding_spec == f"{{devices=[{rows},{columns}]{ids}}}"
    assert both.sharding_type == xs.ShardingType.TILED
    all_rows = xs.mark_sharding(torch.ones(4, 4).to("xla"), mesh, ((0, 1), None))
    assert all_rows.sharding_spec == f"{{devices=[{devices},1]{ids}}}"
    whole = xs.mark_sharding(torch.ones(4, 4).to("xla"), mesh, (None, None))
    assert whole.sharding_spec == "{replicated}"
    assert whole.sharding_type == xs.ShardingType.REPLICATED
    assert _XLAC._get_xla_sharding_spec(torch.ones(2).to("xla")) == ""
    if rows > 1 and columns > 1:
        some = xs.mark_sharding(torch.ones(4, 4).to("xla"), mesh, (0, None))
        assert (
            some.sharding_spec == f"{{devices=[{rows},1,{columns}]{ids} last_tile_dim_replicate}}"
        )
        assert some.sharding_type == xs.ShardingType.PARTIAL
    back = xs.Mesh(list(reversed(range(devices))), (devices,))
    turned = xs.mark_sharding(torch.ones(8).to("xla"), back, (0,))
    assert turned.sharding_spec == f"{{devices=[{devices}]{','.join(reversed(ids.split(',')))}}}"
    assert sorted(t.value for t in xs.ShardingType) == list(range(7))


def integers_scalars_and_many_dims(devices):
    mesh = grid(devices)
    numbers = torch.arange(30).reshape(5, 6)
    t = numbers.to("xla")
    xs.mark_sharding(t, mesh, (0, 1))
    assert torch.equal((t * 2).cpu(), numbers * 2)
    xs.mark_sharding(torch.tensor(1.0).to("xla"), mesh, ())
    wide = torch.randn(2, 3, 4, 5)
    w = wide.to("xla")
    xs.mark_sharding(w, mesh, (None, "data", None, "model"))
    same(w.sum((1, 3)), wide.sum((1, 3)))


def a_copy_with_gradients_leaves_the_tensor_as_it_is(devices):
    x = torch.randn(8, 4)
    t = x.to("xla").requires_grad_(True)
    copy = xs.mark_sharding_with_gradients(t, line(devices), (0, None))
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(copy)
    assert not _XLAC._get_xla_sharding_spec(t)
    (copy * x.to("xla")).sum().backward()
    torch_xla.sync()
    same(t.grad, x)
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(t.grad)


def a_mark_can_be_cleared_and_replaced(devices):
    x = torch.randn(8, 4)
    t = x.to("xla")
    xs.mark_sharding(t, line(devices), (0, None))
    xs.annotate_custom_sharding(t, line(devices), (None, 0))
    assert f"devices=[1,{devices}]" in _XLAC._get_xla_sharding_spec(t)
    torch_xla.sync()
    assert f"devices=[1,{devices}]" in _XLAC._get_xla_sharding_spec(t)
    assert xs.clear_sharding(t) is t and _XLAC._get_xla_sharding_spec(t) == ""
    xs.mark_sharding(t, line(devices), (0, None))
    same(t, x)


def what_is_written_in_place_keeps_its_mark(devices):
    t = torch.ones(8, 4).to("xla")
    said = xs.mark_sharding(t, line(devices), (0, None)).sharding_spec
    t.add_(1)
    t[3:5] = 0
    assert _XLAC._get_xla_sharding_spec(t) == said
    want = torch.full((8, 4), 2.0)
    want[3:5] = 0
    same(t, want)


def structures_are_sharded_alike(devices):
    x = torch.randn(8)
    a = xs.mark_sharding_with_gradients(x.to("xla"), line(devices), (0,))
    a, b = xs.shard_as(a, x.to("xla"))
    torch_xla.sync()
    assert _XLAC._get_xla_sharding_spec(a) == _XLAC._get_xla_sharding_spec(b)
    assert f"devices=[{devices}]" in _XLAC._get_xla_sharding_spec(b)


def redistributing_gives_the_same_values(devices):
    x = torch.randn(6, 9)
    marked = xs.mark_sharding(x.to("xla"), grid(devices), (0, None))
    moved = marked.redistribute(grid(devices), (Replicate(), Shard(1)))
    assert moved.placements == (Replicate(), Shard(1))
    same(moved.global_tensor, x)
