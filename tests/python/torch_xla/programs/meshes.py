# SPDX-License-Identifier: Apache-2.0
"""Programs mix meshes: one for inputs, another for parameters. In XLA a sharding has no mesh."""

import copy
import itertools

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
from common import line, refused, same
from torch_xla import _XLAC


def _meshes(devices):
    found = [
        xs.Mesh(range(devices), (devices,)),
        xs.Mesh(range(devices), (devices, 1), ("fsdp", "model")),
        xs.Mesh(range(devices), (1, devices)),
    ]
    if devices % 2 == 0:
        found.append(xs.Mesh(range(devices), (2, devices // 2), ("a", "b")))
        found.append(xs.Mesh(range(devices), (devices // 2, 2)))
        turned = torch.arange(devices).reshape(2, devices // 2).t().flatten().tolist()
        found.append(xs.Mesh(turned, (devices,), ("turned",)))
    return found


def one_step_may_use_several(devices):
    x, y = torch.randn(8, 12), torch.randn(12, 8)
    for one, other in itertools.combinations(_meshes(devices), 2):
        axes = tuple(range(len(one.mesh_shape))), tuple(range(len(other.mesh_shape)))
        a, b, c = x.to("xla"), y.to("xla"), x.to("xla")
        said = xs.mark_sharding(a, one, (axes[0], None)).sharding_spec
        told = xs.mark_sharding(b, other, (None, axes[1])).sharding_spec
        xs.mark_sharding(c, other, (None, None))
        same((a @ b).tanh() + (a * c).sum(1, keepdim=True), (x @ y).tanh() + (x * x).sum(1, True))
        assert (_XLAC._get_xla_sharding_spec(a), _XLAC._get_xla_sharding_spec(b)) == (said, told)
        assert said == f"{{devices=[{devices},1]{','.join(map(str, one.device_ids.tolist()))}}}"


def what_is_alive_is_trained_on_through_a_change(devices):
    plain = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.ReLU(), torch.nn.Linear(24, 4))
    model = copy.deepcopy(plain).to("xla")
    xs.mark_sharding(model[0].weight, line(devices), (0, None))
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (plain, model)]
    for mesh in _meshes(devices):
        x, y = torch.randn(8, 6), torch.randint(4, (8,))
        axes = tuple(range(len(mesh.mesh_shape)))
        hidden = plain[1](plain[0](x))
        F.cross_entropy(plain[2](hidden), y).backward()
        t = x.to("xla")
        made = model[1](model[0](t))
        xs.mark_sharding(made, mesh, (None, axes[-1]))
        F.cross_entropy(model[2](made), y.to("xla")).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        torch_xla.sync()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        same(mine, theirs)
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(model[0].weight)


def inputs_have_a_mesh_of_their_own(devices):
    weights = xs.Mesh(range(devices), (1, devices), ("data", "model"))
    inputs = xs.Mesh(range(devices), (devices, 1, 1), ("data", "rows", "columns"))
    layer = torch.nn.Linear(5, 8)
    batches = [(torch.randn(8, 5, 5), torch.randn(8)) for _ in range(2)]
    want = [(layer(x).mean((1, 2)) * y).sum() for x, y in batches]
    layer.to("xla")
    xs.mark_sharding(layer.weight, weights, ("model", "data"))
    spec = xs.ShardingSpec(inputs, ("data", "rows", "columns"))
    loader = pl.MpDeviceLoader(batches, torch_xla.device(), input_sharding=spec)
    for (x, y), total in zip(loader, want, strict=True):
        same((layer(x).mean((1, 2)) * y).sum(), total)


def another_order_of_devices_is_another_kind_of_mesh(devices):
    a, b = torch.ones(8).to("xla"), torch.ones(8).to("xla")
    xs.mark_sharding(a, line(devices), (0,))
    back = xs.Mesh([1, 0, *range(2, devices)], (devices,))
    xs.mark_sharding(b, back, (0,))
    if devices > 2:
        with refused(Exception, "two meshes"):
            (a + b).cpu()
    torch_xla.sync()
