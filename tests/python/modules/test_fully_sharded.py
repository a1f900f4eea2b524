# SPDX-License-Identifier: Apache-2.0
"""fully_shard beside other calls and axes: policies of wrapping, a second axis for the batch."""

import functools

import pytest
import spmdx
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    _recursive_wrap,
    always_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from torch.distributed.tensor import Shard

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def network():
    torch.manual_seed(0)
    layers = nn.Linear(6, 12), Block(12), Block(12), nn.Linear(12, 5)
    return nn.Sequential(*layers)


POLICIES = {
    "size": functools.partial(size_based_auto_wrap_policy, min_num_params=500),
    "small": functools.partial(size_based_auto_wrap_policy, min_num_params=50),
    "transformer": functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
    "always": always_wrap_policy,
    "classes": ModuleWrapPolicy({Block, nn.Linear}),
    "custom": CustomPolicy(lambda m: isinstance(m, Block)),
}


class Wrapper(nn.Module):
    """Stands for FSDP where PyTorch wraps."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def wrapped_by_pytorch(policy):
    """Names of the modules that PyTorch wraps."""
    net = network()
    names = {m: n for n, m in net.named_modules()}
    if hasattr(policy, "_run_policy"):
        found = policy._run_policy(net, set(), {})
        return {names[m] for m in found if m is not net}
    _recursive_wrap(net, policy, Wrapper, set(), set(), only_wrap_children=True)
    return {names[m.module] for m in net.modules() if isinstance(m, Wrapper)}


def is_wrapped(module):
    """Whether hooks are for a call on this very module."""
    return any(not hook.__self__.part for hook in module._forward_pre_hooks.values())


@pytest.mark.parametrize("name", POLICIES)
def test_policies_choose_the_modules_that_pytorch_wraps(name):
    net = network().to("spmdx")
    policy = MixedPrecisionPolicy(param_dtype=torch.float64)
    spmdx.fully_shard(
        net, spmdx.get_1d_mesh("fsdp"), mp_policy=policy, auto_wrap_policy=POLICIES[name]
    )
    found = {n for n, m in net.named_modules() if n and is_wrapped(m)}
    assert found == wrapped_by_pytorch(POLICIES[name])


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("options", ["wrapped", "kept", "second axis"])
def test_training_equals_one_device(devices, options):
    here, there = network().double(), network().double().to("spmdx")
    mesh = spmdx.Mesh(range(devices), (devices,), ("fsdp",))
    given = {
        "wrapped": {
            "auto_wrap_policy": POLICIES["transformer"],
            "mp_policy": MixedPrecisionPolicy(torch.float64, output_dtype=torch.float64),
        },
        "kept": {"auto_wrap_policy": POLICIES["size"], "reshard_after_forward": False},
        "second axis": {"extra_data_axis": "data"},
    }[options]
    if options == "second axis":
        mesh = spmdx.Mesh(range(devices // 2 * 2), (2, devices // 2), ("data", "fsdp"))
    spmdx.fully_shard(there, mesh, **given)
    x, results = torch.randn(7, 6, dtype=torch.float64), []
    for model, rows in ((here, x), (there, x.to("spmdx"))):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            loss = model(rows).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append([x.detach().cpu() for x in (loss, *model.parameters())])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_the_batch_is_cut_along_both_axes_and_parameters_along_one():
    net = nn.Sequential(nn.Linear(8, 16, bias=False)).to("spmdx")
    mesh = spmdx.Mesh(range(8), (2, 4), ("data", "fsdp"))
    spmdx.fully_shard(net, mesh, extra_data_axis="data")
    x, marked = torch.ones(16, 8).to("spmdx"), torch.ones(16, 8).to("spmdx")
    spmdx.mark_sharding(marked, mesh, (None, "data"))
    net(x), net(marked)
    assert spmdx.get_annotation(x).spec == (("data", "fsdp"), None)
    assert spmdx.get_annotation(marked).spec == (None, "data")  # as the user said
    assert net[0].weight.partition_spec == ("fsdp", None)
    spmdx.fully_shard(net, mesh)
    assert not net._forward_pre_hooks  # the last call counts


def test_what_was_said_of_a_module_within_holds():
    net = network().to("spmdx")
    mesh = spmdx.get_1d_mesh("fsdp")
    spmdx.fully_shard(net[3], mesh, shard_placement_fn=lambda p: Shard(p.dim() - 1))
    spmdx.fully_shard(net, mesh)
    assert net[3].weight.partition_spec == (None, "fsdp")
    assert net[1].up.weight.partition_spec == ("fsdp", None)
    half = spmdx.Mesh(range(4), (4,), ("fsdp",))
    spmdx.fully_shard(net, half)  # another mesh: all of it
    assert all(p.mesh == half for p in net.parameters())


@pytest.mark.parametrize("keep", [None, False])
def test_what_another_axis_cuts_stays_cut(keep):
    mesh = spmdx.Mesh(range(8), (4, 2), ("fsdp", "tp"))
    net = nn.Sequential(nn.Linear(16, 8, bias=False), nn.Linear(8, 16, bias=False)).to("spmdx")
    spmdx.nn.shard_module(net, mesh, {"0.weight": ("tp", None), "1.weight": (None, "tp")})
    spmdx.fully_shard(net, mesh, reshard_after_forward=keep)
    assert net[0].weight.partition_spec == ("tp", "fsdp")
    assert net[1].weight.partition_spec == ("fsdp", "tp")
    spmdx.mark_step()
    x = spmdx.mark_sharding(torch.ones(4096, 16).to("spmdx"), mesh, ("fsdp", ...))
    net(x).square().mean().backward()
    spmdx.mark_step()
    gathered = [c for c in spmdx.explain().collectives if c.kind == "all_gather"]
    assert {c.axes for c in gathered} == {("fsdp",)}


def test_the_only_axis_needs_no_name():
    layer = nn.Linear(8, 8).to("spmdx")
    assert spmdx.fully_shard(layer, spmdx.get_1d_mesh("x")).weight.partition_spec == ("x", None)
    with pytest.raises(spmdx.ShardingError, match="has no axis 'fsdp'"):
        spmdx.fully_shard(layer, spmdx.Mesh(range(8), (4, 2), ("a", "b")))
