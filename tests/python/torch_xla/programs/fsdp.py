# SPDX-License-Identifier: Apache-2.0
"""SpmdFullyShardedDataParallel trains as plain PyTorch does, and says what it refuses."""

import copy
import functools

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
from common import grid, line, refused, same
from torch_xla import _XLAC
from torch_xla.distributed.fsdp import checkpoint_module
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)


def _model():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 20), torch.nn.LayerNorm(20), torch.nn.GELU(), torch.nn.Linear(20, 5)
    )


def _trained(model, place, mark=lambda x: None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        torch.manual_seed(step)
        x, y = torch.randn(12, 6), torch.randint(5, (12,))
        x, y = x.to(place), y.to(place)
        mark(x)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if place == "cpu":
            optimizer.step()
        else:
            xm.optimizer_step(optimizer)
            torch_xla.sync()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return torch.stack(losses)


def training_is_that_of_plain_pytorch(devices):
    plain = _model()
    wrapped = FSDPv2(copy.deepcopy(plain), mesh=line(devices, "fsdp"))
    want = _trained(plain, "cpu")
    got = _trained(
        wrapped, "xla", lambda x: xs.mark_sharding(x, line(devices, "fsdp"), ("fsdp", None))
    )
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(wrapped.parameters(), plain.parameters(), strict=True):
        same(mine, theirs)


def the_longest_dim_is_cut_and_the_output_by_rows(devices):
    mesh = line(devices, "fsdp")
    model = FSDPv2(_model(), mesh=mesh)
    first, last = model.module[0], model.module[3]
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(first.weight)
    assert f"devices=[1,{devices}]" in _XLAC._get_xla_sharding_spec(last.weight)
    output = model(torch.randn(8, 6).to("xla"))
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(output)
    assert model[0] is first and model.module is not model


def a_model_that_has_run_is_cut_too(devices):
    model = _model().to("xla")
    model(torch.ones(2, 6).to("xla"))
    xs.mark_sharding(model[3].weight, line(devices, "fsdp"), (None, None))
    torch_xla.sync()
    wrapped = FSDPv2(model, mesh=line(devices, "fsdp"))
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(wrapped[0].weight)
    assert _XLAC._get_xla_sharding_spec(wrapped[3].weight) == "{replicated}"


def rows_lie_along_a_second_axis_too(devices):
    mesh = grid(devices, ("data", "fsdp"))
    plain = _model()
    model = FSDPv2(copy.deepcopy(plain), mesh=mesh, extra_data_axis="data")
    x = torch.randn(8, 6)
    t = x.to("xla")
    xs.mark_sharding(t, mesh, (("data", "fsdp"), None))
    output = model(t)
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(output)
    same(output, plain(x))


def modules_inside_are_wrapped_by_a_policy(devices):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={torch.nn.Linear}
    )
    plain = _model()
    model = FSDPv2(copy.deepcopy(plain), mesh=line(devices, "fsdp"), auto_wrap_policy=policy)
    assert isinstance(model.module[0], FSDPv2) and not isinstance(model.module[1], FSDPv2)
    x = torch.randn(8, 6)
    same(model(x.to("xla")), plain(x))


def an_output_of_several_tensors_needs_to_be_told(devices):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x):
            return {"y": self.layer(x)}

    mesh, x = line(devices, "fsdp"), torch.randn(8, 3).to("xla")
    with refused(RuntimeError, "shard_output"):
        FSDPv2(Two(), mesh=mesh)(x)

    def mark(output, mesh):
        xs.mark_sharding(output["y"], mesh, ("fsdp", None))

    output = FSDPv2(Two(), mesh=mesh, shard_output=mark)(x)
    assert f"devices=[{devices},1]" in _XLAC._get_xla_sharding_spec(output["y"])


def modules_inside_mark_their_outputs_as_they_are_told(devices):
    class Inner(torch.nn.Linear):
        def forward(self, x):
            return {"y": super().forward(x)}

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner(6, 4)

        def forward(self, x):
            return {"y": self.inner(x)["y"].relu()}

    def mark(output, mesh):
        xs.mark_sharding(output["y"], mesh, ("fsdp", None))

    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Inner})
    plain, x = Outer(), torch.randn(8, 6)
    mesh = line(devices, "fsdp")
    model = FSDPv2(copy.deepcopy(plain), mesh=mesh, shard_output=mark, auto_wrap_policy=policy)
    assert isinstance(model.module.inner, FSDPv2)
    same(model(x.to("xla"))["y"], plain(x)["y"])


def what_is_computed_again_gives_all_gradients(devices):
    class Scaled(torch.nn.Linear):
        def forward(self, x, scale=1.0):
            return super().forward(x) * scale

    plain = torch.nn.ModuleList([Scaled(6, 6), Scaled(6, 6)])
    model = copy.deepcopy(plain).to("xla")
    for layer in model:
        checkpoint_module(layer)
    x = torch.randn(8, 6)
    for layers, given in ((plain, x), (model, x.to("xla"))):
        layers[1](layers[0](given), scale=0.5).square().sum().backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        same(mine.grad, theirs.grad)


def what_cannot_be_wrapped_is_refused(devices):
    with refused(ValueError, "mesh"):
        FSDPv2(_model())
    with refused(ValueError, "fsdp"):
        FSDPv2(_model(), mesh=line(devices, "data"))
    with refused(ValueError, "The provided ddp axis is not in the mesh."):
        FSDPv2(_model(), mesh=line(devices, "fsdp"), extra_data_axis="ddp")
    with refused(RuntimeError, "wrapped already"):
        FSDPv2(FSDPv2(_model(), mesh=line(devices, "fsdp")), mesh=line(devices, "fsdp"))
    with refused(RuntimeError, "forward"):
        FSDPv2(torch.nn.ModuleList([_model()]), mesh=line(devices, "fsdp"))
