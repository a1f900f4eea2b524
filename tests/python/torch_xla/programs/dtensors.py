# SPDX-License-Identifier: Apache-2.0
"""distribute_tensor and distribute_module of PyTorch on meshes of "xla"."""

import torch
import torch_xla.distributed.spmd as xs
from common import refused, same
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch_xla.distributed.spmd import auto_policy, xla_distribute_module, xla_distribute_tensor


def _mesh(devices):
    return DeviceMesh("xla", list(range(devices)))


def a_tensor_is_distributed(devices):
    x = torch.randn(8, 3)
    for place in (Shard(0), Shard(1), Replicate()):
        for distribute in (distribute_tensor, xla_distribute_tensor):
            got = distribute(x.clone(), _mesh(devices), [place])
            assert isinstance(got, DTensor) and isinstance(got, xs.XLAShardedTensor)
            assert got.placements == (place,)
            same(got.global_tensor, x)


def a_module_is_distributed(devices):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x, seen = torch.randn(6, 4), []
    want = model(x)

    def cut(name, part, mesh):
        if isinstance(part, torch.nn.Linear):
            part.weight = torch.nn.Parameter(
                xla_distribute_tensor(part.weight, mesh, [Shard(0)]).global_tensor
            )

    result = distribute_module(
        model, _mesh(devices), cut, input_fn=lambda part, inputs, mesh: seen.append(mesh)
    )
    assert result is model
    assert f"devices=[{devices},1]" in xs.wrap_if_sharded(model[0].weight).sharding_spec
    same(model(x.to("xla")), want)
    assert len(seen) == 1


def a_module_can_be_cut_by_a_policy(devices):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(6, 4)
    want = model(x)
    result = distribute_module(model, _mesh(devices), auto_policy)
    assert f"devices=[{devices},1]" in xs.wrap_if_sharded(result[0].weight).sharding_spec
    same(result(x.to("xla")), want)


def what_cannot_be_distributed_is_refused(devices):
    mesh, x = _mesh(devices), torch.randn(8, 3)
    with refused(ValueError, "Unsupported placement type"):
        xla_distribute_tensor(x, mesh, [Partial()])
    got = xla_distribute_tensor(x.to("xla"), mesh, [Shard(0)])
    with refused(AssertionError):
        xla_distribute_tensor(got.global_tensor, mesh, [Shard(1)])
    with refused(AssertionError):
        xla_distribute_tensor(x, DeviceMesh("xla", list(range(devices - 1))), [Shard(0)])
    with refused(ValueError):
        xla_distribute_module(torch.nn.Linear(2, 2), mesh, input_fn=lambda inputs: inputs)
