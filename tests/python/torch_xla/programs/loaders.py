# SPDX-License-Identifier: Apache-2.0
"""Batches on the device: marked as input_sharding says, in order, each a step of its own."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
from common import line, refused, same
from torch_xla import _XLAC
from torch_xla.debug import metrics


def _batches(rows=(8, 8, 5)):
    return [(torch.randn(n, 3), torch.arange(n)) for n in rows]


def batches_come_in_order_and_are_marked(devices):
    batches = _batches()
    spec = xs.ShardingSpec(line(devices), (0, None))
    loader = pl.MpDeviceLoader(batches, torch_xla.device(), input_sharding=spec)
    assert len(loader) == 3
    for _ in range(2):
        given = list(loader)
        assert len(given) == 3
        for (x, y), (want, numbers) in zip(given, batches, strict=True):
            assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(x)
            assert _XLAC._get_xla_sharding_spec(y) == "{replicated}"
            same(x, want)
            assert torch.equal(y.cpu(), numbers)


def a_dict_has_a_spec_for_each_key(devices):
    batches = [{"x": torch.randn(8, 3), "y": torch.randn(4), "z": torch.randn(2)}]
    specs = {
        "x": xs.ShardingSpec(line(devices), (0, None)),
        "y": xs.ShardingSpec(line(devices), (0,)),
        "z": None,
    }
    (batch,) = pl.MpDeviceLoader(batches, torch_xla.device(), input_sharding=specs)
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(batch["x"])
    assert f"devices=[{devices}]" in _XLAC._get_xla_sharding_spec(batch["y"])
    assert _XLAC._get_xla_sharding_spec(batch["z"]) == "{replicated}"
    for name, want in batches[0].items():
        same(batch[name], want)
    with refused(KeyError, "z"):
        less = {"x": specs["x"], "y": specs["y"]}
        list(pl.MpDeviceLoader(batches, torch_xla.device(), input_sharding=less))
    with refused(ValueError, "dict"):
        list(pl.MpDeviceLoader(_batches(), torch_xla.device(), input_sharding=specs))


def errors_of_the_loader_surface(devices):
    def failing():
        yield torch.ones(2)
        raise OSError("the disk is gone")

    loader = iter(pl.MpDeviceLoader(failing(), torch_xla.device()))
    same(next(loader), torch.ones(2))
    with refused(OSError, "the disk is gone"):
        next(loader)


def minibatches_are_divisible(devices):
    spec = xs.ShardingSpec(line(devices), (0, None), minibatch=True)
    x = torch.randn(2 * devices, 3)
    (sent,) = xm.send_cpu_data_to_device([x], torch_xla.device(), spec)
    same(sent, x)
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(sent)
    with refused(RuntimeError, "must be divisible"):
        xm.send_cpu_data_to_device([torch.randn(devices + 1, 3)], torch_xla.device(), spec)


def each_batch_ends_a_step(devices):
    torch_xla.sync(wait=True)
    total = torch.zeros(3).to("xla")
    loader = pl.ParallelLoader(_batches(), [torch_xla.device()], batches_per_execution=1)
    metrics.clear_all()
    for x, _ in loader.per_device_loader(torch_xla.device()):
        total = total + x.sum(0)
    xm.wait_device_ops()
    assert metrics.counter_value("ExecuteReplicated") == 3


def a_spec_says_what_it_fits(devices):
    spec = xs.ShardingSpec(line(devices), (0, None))
    assert spec.can_apply(torch.ones(2, 2)) and not spec.can_apply(torch.ones(2))
    assert spec.xla_spec(torch.ones(2)) is None
    t = torch.randn(4, 2).to("xla")
    spec.apply(t)
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(t)


def what_is_no_spec_is_refused(devices):
    x = torch.ones(4, 2)
    for wrong in (("data", None), [None], {"x": ("data", None)}):
        with refused(TypeError, "Expected a ShardingSpec"):
            list(pl.MpDeviceLoader([{"x": x}], torch_xla.device(), input_sharding=wrong))
