# SPDX-License-Identifier: Apache-2.0
"""What fully_shard does around forward passes, under transforms, checkpoints and other hooks."""

import copy
import warnings

import pytest
import spmdx
import torch
from messages import message_of
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.func import functional_call, grad, jvp, vmap
from torch.utils import checkpoint

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

SINGLE = MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=torch.float64)
OPTIONS = {
    "gathered": {"reshard_after_forward": False},
    "dtypes": {"mp_policy": SINGLE},
    "both": {"reshard_after_forward": False, "mp_policy": SINGLE},
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).double()


def of_each_sample(net, parameters, x):
    def loss(parameters, row):
        return functional_call(net, parameters, (row,)).square().sum()

    return vmap(grad(loss), (None, 0))(parameters, x)


def of_the_sum(net, parameters, x):
    return grad(lambda p: functional_call(net, p, (x,)).square().sum())(parameters)


def forward_mode(net, parameters, x):
    tangents = {name: torch.ones_like(p) for name, p in parameters.items()}
    return jvp(lambda p: functional_call(net, p, (x,)), (parameters,), (tangents,))


def of_many_models(net, parameters, x):
    many = {name: torch.stack([p, 2 * p]) for name, p in parameters.items()}
    return vmap(lambda p: functional_call(net, p, (x,)))(many)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "transform",
    [of_the_sum, of_each_sample, forward_mode, of_many_models],
    ids=lambda f: f.__name__,
)
def test_transforms_of_torch_func_equal_those_of_one_device(transform, options):
    plain = network()
    net = copy.deepcopy(plain).to("spmdx")
    spmdx.fully_shard(net, spmdx.Mesh(range(3), (3,), ("fsdp",)), **OPTIONS[options])
    x = torch.randn(7, 6, dtype=torch.float64)
    wanted = transform(plain, dict(plain.named_parameters()), x)
    found = transform(net, dict(net.named_parameters()), x.to("spmdx"))
    leaves = torch.utils._pytree.tree_leaves
    for mine, theirs in zip(leaves(found), leaves(wanted), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-4)
    assert all(isinstance(p, nn.Parameter) for p in net.parameters())


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randint(-99, 99, (9, 6)).char(), requires_grad=False)
        self.order = nn.Parameter(torch.tensor([257, 300, 5]), requires_grad=False)
        self.turn = nn.Parameter(torch.randn(3, dtype=torch.complex64))

    def forward(self, x):
        rows = (x @ self.weight.to(x.dtype).t())[:, self.order % 9]
        return (rows.float() * self.turn).imag


@pytest.mark.parametrize("reduced", [None, torch.bfloat16])
def test_only_floats_are_cast(reduced):
    torch.manual_seed(0)
    plain = Quantized()
    net = copy.deepcopy(plain).to("spmdx")
    policy = MixedPrecisionPolicy(torch.bfloat16, reduced)
    spmdx.fully_shard(net, spmdx.Mesh(range(3), (3,), ("fsdp",)), mp_policy=policy)
    x = torch.randn(4, 6)
    results = plain(x), net(x.to("spmdx"))
    for result in results:
        result.sum().backward()
    scale = results[0].abs().max().item()
    torch.testing.assert_close(results[1].cpu().float(), results[0], rtol=0.02, atol=scale / 50)
    torch.testing.assert_close(net.turn.grad.cpu(), plain.turn.grad, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("saved", [torch.ops.aten.addmm.default, torch.ops.aten._to_copy.default])
def test_selective_checkpoints_see_the_ops_of_the_program_alone(saved, inner):
    def choose(context, op, *args, **kwargs):
        policy = checkpoint.CheckpointPolicy
        return policy.MUST_SAVE if op == saved else policy.PREFER_RECOMPUTE

    def contexts():
        return checkpoint.create_selective_checkpoint_contexts(choose)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            def part(x):
                return self.net(x.to(torch.bfloat16).to(x.dtype))

            part = self.net if inner else part
            return checkpoint.checkpoint(part, x, use_reentrant=False, context_fn=contexts)

    plain = Outer()
    net = copy.deepcopy(plain).to("spmdx")
    mesh = spmdx.Mesh(range(3), (3,), ("fsdp",))
    if inner:
        spmdx.fully_shard(net.net, mesh, mp_policy=SINGLE)
    spmdx.fully_shard(net, mesh, mp_policy=SINGLE, reshard_after_forward=False)
    x = torch.randint(-3, 4, (5, 6)).double() / 2  # the same in each dtype
    plain(x).square().sum().backward()
    net(x.to("spmdx")).square().sum().backward()
    for mine, theirs in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_a_hook_that_raises_first_is_all_that_is_heard():
    def stop(module, args):
        raise KeyError("mine")

    net = network().to("spmdx")
    net.register_forward_pre_hook(stop)
    spmdx.fully_shard(net, spmdx.get_1d_mesh("fsdp"), mp_policy=SINGLE)
    with warnings.catch_warnings(), pytest.raises(KeyError, match="mine"):
        warnings.simplefilter("error")
        net(torch.ones(2, 6).to("spmdx"))


def test_modules_that_were_wrapped_after_the_call_are_refused():
    net = network().to("spmdx")
    spmdx.fully_shard(net, spmdx.get_1d_mesh("fsdp"), mp_policy=SINGLE)
    net[2] = nn.Sequential(net[2])
    said = message_of(spmdx.ShardingError, lambda: net(torch.ones(2, 6).to("spmdx")))
    assert "fully_shard: 2.weight is no parameter any more" in said
    assert all(isinstance(p, nn.Parameter) for p in net.parameters())


def test_the_axis_of_parameters_is_no_extra_one():
    mesh, net = spmdx.Mesh(range(8), (2, 4), ("data", "fsdp")), network().to("spmdx")
    said = message_of(
        spmdx.ShardingError, lambda: spmdx.fully_shard(net, mesh, extra_data_axis="fsdp")
    )
    assert "extra_data_axis is 'fsdp', which cuts the parameters. Expected another axis" in said
