# SPDX-License-Identifier: Apache-2.0
"""Manual regions: ops on what one device holds, and reductions over groups of devices."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
from common import grid, line, refused, same
from torch_xla import _XLAC


def a_tensor_goes_in_and_comes_out(devices):
    for mesh, specs in (
        (line(devices), ((0, None), (None, 0), (None, None))),
        (grid(devices), ((0, 1), (1, 0), ((0, 1), None), ((1, 0), None), (None, 1))),
    ):
        x = torch.arange(float(4 * devices * devices)).reshape(2 * devices, 2 * devices)
        for spec in specs:
            part = xs.enable_manual_sharding(x.to("xla"), spec, mesh=mesh)
            assert part.sharding_spec == "{manual}"
            assert part.sharding_type == xs.ShardingType.MANUAL
            whole = xs.disable_manual_sharding(part * 2 + 1, spec, x.shape, mesh=mesh)
            same(whole.global_tensor, x * 2 + 1)


def ops_are_those_of_one_device(devices):
    x = torch.randn(3 * devices, 4)
    part = xs.enable_manual_sharding(x.to("xla"), (0, None), mesh=line(devices))
    assert part.shape == (3, 4)
    centred = part - part.mean(0, keepdim=True)
    whole = xs.disable_manual_sharding(centred, (0, None), x.shape, mesh=line(devices))
    chunks = [c - c.mean(0, keepdim=True) for c in x.chunk(devices)]
    same(whole.global_tensor, torch.cat(chunks))


def reductions_over_groups(devices):
    xs.set_global_mesh(line(devices))
    ids = list(range(devices))
    x = torch.randn(devices, 2 * devices)
    part = xs.enable_manual_sharding(x.to("xla"), (0, None)).global_tensor
    total = _XLAC._xla_spmd_all_reduce(xm.REDUCE_SUM, part, 0.5, [ids])
    whole = xs.disable_manual_sharding(total, (None, None), (1, 2 * devices)).global_tensor
    same(whole, x.sum(0, keepdim=True) * 0.5)
    most = _XLAC._xla_spmd_all_reduce(xm.REDUCE_MAX, part, 1.0, [ids])
    whole = xs.disable_manual_sharding(most, (None, None), (1, 2 * devices)).global_tensor
    same(whole, x.amax(0, keepdim=True))
    for dim in (1, -1):
        cut = _XLAC._xla_spmd_reduce_scatter(xm.REDUCE_SUM, part, 1.0, dim, devices, [ids])
        assert cut.shape == (1, 2)
        whole = xs.disable_manual_sharding(cut, (None, 0), (1, 2 * devices)).global_tensor
        same(whole, x.sum(0, keepdim=True))
    if devices % 2 == 0:
        halves = [ids[: devices // 2], ids[devices // 2 :]]
        some = _XLAC._xla_spmd_all_reduce(xm.REDUCE_SUM, part, 1.0, halves)
        whole = xs.disable_manual_sharding(some, (0, None), x.shape).global_tensor
        sums = [h.sum(0, keepdim=True).expand(devices // 2, -1) for h in x.chunk(2)]
        same(whole, torch.cat(sums))


def what_every_device_has_whole_can_be_called_its_own(devices):
    x = torch.ones(8, 8).to("xla")
    x = xs.enable_manual_sharding(x, (None, None), mesh=line(devices)).global_tensor
    x = _XLAC._xla_spmd_reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, 1, [[0]])
    whole = xs.disable_manual_sharding(x, (None, None), x.shape, mesh=line(devices))
    same(whole.global_tensor, torch.ones(8, 8))
    result = torch.ones(4).to("xla") + 1
    marked = xs._mark_manual_sharding(result)
    assert marked.sharding_spec == "{manual}" and marked.shape == (4,)
    with refused(RuntimeError, "data tensors"):
        xs._mark_manual_sharding(torch.ones(4).to("xla"))


def what_does_not_fit_is_refused(devices):
    mesh = line(devices)
    with refused(RuntimeError, "evenly"):
        xs.enable_manual_sharding(torch.ones(devices + 1, 2).to("xla"), (0, None), mesh=mesh)
    with refused(RuntimeError, "not manual"):
        xs.disable_manual_sharding(torch.ones(8).to("xla"), (None,), (8,), mesh=mesh)
    part = xs.enable_manual_sharding(torch.ones(devices, 2).to("xla"), (0, None), mesh=mesh)
    with refused(RuntimeError, "one device's part"):
        xs.disable_manual_sharding(part, (0, None), (2 * devices, 2), mesh=mesh)
    with refused(RuntimeError, "disable_manual_sharding"):
        part.global_tensor.sum().item()
    with refused(ValueError, "mesh is required"):
        xs.enable_manual_sharding(torch.ones(devices).to("xla"), (0,))
    torch_xla.sync()
