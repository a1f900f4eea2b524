# SPDX-License-Identifier: Apache-2.0
"""DTensors become tensors of spmdx and back, in the same memory: dtensors.py."""

import copy

import spmdx
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

dist.init_process_group("gloo")
COUNT = dist.get_world_size()
SHAPE = (COUNT,) if COUNT < 4 else (2, COUNT // 2)
NAMES = ("a", "b")[: len(SHAPE)]
MESH = init_device_mesh("cpu", SHAPE, mesh_dim_names=NAMES)
SPECS = [
    [Shard(0), Shard(1)],
    [Shard(1), Replicate()],
    [Replicate(), Shard(0)],
    [Shard(0), Shard(0)],
    [Replicate(), Replicate()],
]


def there_and_back(whole: torch.Tensor, placements: list) -> None:
    placements = placements[: len(SHAPE)]
    there = distribute_tensor(whole, MESH, placements)
    here = spmdx.ShardedTensor.from_dtensor(there)
    assert here.placements == tuple(placements), (here.placements, placements)
    assert torch.equal(here.cpu(), whole)
    (shard,) = here.local_shards
    local = there.to_local()
    assert shard.data.data_ptr() == local.data_ptr() or not local.numel()
    before = local.clone()
    here += 1  # writes somewhere else
    twice = here * 2
    assert torch.equal(twice.cpu(), (whole + 1) * 2)
    assert torch.equal(there.to_local(), before)
    back = spmdx.mark_sharding(twice, here.mesh, here.partition_spec).to_dtensor()
    assert back.device_mesh == MESH and back.placements == tuple(placements)
    assert torch.equal(back.full_tensor(), (whole + 1) * 2)


def trained() -> None:
    """A model of DTensors goes on here, as it would in plain PyTorch."""
    torch.manual_seed(1)
    model = torch.nn.Linear(12, 12).double()
    x = torch.randn(8, 12, dtype=torch.float64)
    placements = [Shard(0), Replicate()][: len(SHAPE)]
    weight = torch.nn.Parameter(distribute_tensor(model.weight.detach(), MESH, placements))
    mine = spmdx.ShardedTensor.from_dtensor(weight)
    assert isinstance(mine, torch.nn.Parameter) and isinstance(mine, spmdx.ShardedTensor)
    bias = model.bias.detach().clone().to("spmdx").requires_grad_()
    loss = torch.nn.functional.linear(x.to("spmdx"), mine, bias).square().mean()
    loss.backward()
    expected = model(x).square().mean()
    expected.backward()
    assert torch.allclose(mine.grad.cpu(), model.weight.grad, rtol=1e-12)
    assert torch.equal(mine.to_dtensor().full_tensor(), model.weight.detach())
    assert isinstance(mine.to_dtensor(), torch.nn.Parameter)
    local = weight.to_local().detach()
    before = local.clone()
    for fused in (False, True):
        torch.optim.AdamW([mine], lr=0.1, fused=fused).step()
        assert not torch.equal(mine.cpu(), model.weight.detach())
        assert torch.equal(local, before)  # written to by nobody


def sliced() -> None:
    """Slices of a DeviceMesh hold other devices in each process, and name the same axes in all."""
    torch.manual_seed(2)
    plain = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
    model = copy.deepcopy(plain).to("spmdx")
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    spmdx.nn.parallelize_module(model, MESH["b"], plan, data_axis="a")
    spmdx.fully_shard(model, MESH["a"])
    assert model[0].weight.partition_spec == ("b", "a"), model[0].weight.partition_spec
    assert model[2].weight.mesh == spmdx.Mesh.from_device_mesh(MESH)
    x = torch.randn(7, 6)
    rows = spmdx.distribute_tensor(x.to("spmdx"), MESH["a"], [Shard(0)])
    for net, batch in ((plain, x), (model, rows)):
        net(batch).square().mean().backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad.cpu(), theirs.grad, atol=1e-6)


def refused() -> None:
    partial = distribute_tensor(torch.ones(4), MESH, [Replicate()] * len(SHAPE)).redistribute(
        placements=[Replicate()] * len(SHAPE)
    )
    sums = type(partial).from_local(torch.ones(4), MESH, [Partial()] * len(SHAPE))
    for wrong in (sums, torch.ones(2)):
        try:
            spmdx.ShardedTensor.from_dtensor(wrong)
        except spmdx.ShardingError as error:
            print(str(error).split(": ", 2)[2].split(".")[0])


for rows in (8, 7):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for placements in SPECS:
            there_and_back(torch.arange(rows * 6).view(rows, 6).to(dtype), placements)
trained()
if len(SHAPE) > 1:
    sliced()
refused()
assert spmdx.Mesh.from_device_mesh(MESH).to_device_mesh() == MESH
