# SPDX-License-Identifier: Apache-2.0
"""torch.utils.checkpoint in compiled programs draws what it has drawn again, as in eager ones."""

import functools

import pytest
import spmdx
import torch
import torch._dynamo
import torch.nn.functional as F
from models import assert_equal
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

BACKENDS = ("spmdx", "aot_eager")
SPECS = {0: None, 2: ("data", None), 3: ("data", None), 4: (None, "data")}  # by devices


def numbers(*shape):
    """Of both signs, and none twice."""
    return torch.linspace(-1.7, 2.3, torch.Size(shape).numel(), dtype=torch.float64).view(shape)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


NOISY = {
    "dropout": lambda x: F.dropout(x.sin(), 0.3),
    "rand": lambda x: x.sin() * torch.rand(7, 3, device=x.device),
    "several": lambda x: F.dropout(x.cos() * torch.randn_like(x), 0.5) + torch.rand_like(x) * x,
    "bernoulli": lambda x: torch.bernoulli(x.detach().sigmoid()) * x.exp(),
    "multinomial": lambda x: x.sin()[:, torch.multinomial(x.detach().softmax(1)[0], 2)],
    "vmap": lambda x: torch.vmap(lambda row: row.sin() * row, randomness="same")(x).exp(),
    "one in another": lambda x: F.dropout(kept(lambda y: F.dropout(y.sin(), 0.3), x.cos()), 0.4),
}


def kept(function, x, **options):
    return checkpoint(function, x, use_reentrant=False, **options)


def trace(function, devices, backend=None, **options):
    """The value, the gradient, and numbers that are drawn after the forward and backward pass."""
    torch.manual_seed(3)
    x = numbers(7, 3).to("spmdx").requires_grad_()
    if devices:
        mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
        spmdx.mark_sharding(x, mesh, SPECS[devices])
    program = functools.partial(kept, function, **options)
    y = (torch.compile(program, backend=backend) if backend else program)(x)
    between = torch.rand(2, device="spmdx")
    y.square().sum().backward()
    found = y, x.grad, between, torch.rand(2, device="spmdx")
    return [t.detach().cpu() for t in found]


@pytest.mark.parametrize("devices", SPECS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NOISY)
def test_a_compiled_checkpoint_draws_as_the_eager_one(name, backend, devices):
    want, got = trace(NOISY[name], 0), trace(NOISY[name], devices, backend)
    for what, found, expected in zip(
        ("value", "gradient", "after forward", "after backward"), got, want, strict=True
    ):
        assert_equal(found, expected, what)


@pytest.mark.parametrize("devices", SPECS)
def test_decompositions_draw_the_same_mask_again(devices):
    """They draw another mask than the eager op, as on the CPU."""
    value, gradient, *_ = trace(NOISY["dropout"], devices, "aot_eager_decomp_partition")
    x = numbers(7, 3)
    mask = (value != 0).double() / 0.7
    assert 0 < mask.count_nonzero() < mask.numel()
    assert_equal(value, mask * x.sin(), "value")
    assert_equal(gradient, 2 * value * mask * x.cos(), "gradient")


def keep_products(context, op, *args, **kwargs):
    keeps = op is torch.ops.aten.mm.default
    return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE


def contexts():
    return create_selective_checkpoint_contexts(keep_products)


@pytest.mark.parametrize("devices", SPECS)
def test_a_choice_of_what_is_kept_holds_in_the_backend_of_the_device(devices):
    def attention(x):
        return ((x @ x.T).softmax(1) @ x).tanh()

    want = trace(attention, 0)
    for found, expected in zip(
        trace(attention, devices, "spmdx", context_fn=contexts), want, strict=True
    ):
        assert_equal(found, expected, "result")


def test_a_compiled_checkpoint_of_the_backend_keeps_no_intermediates():
    layers = nn.Sequential(*[nn.Linear(3, 3), nn.Tanh()] * 4).double().to("spmdx")
    saved = []

    def count(program):
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda t: t):
            program(numbers(7, 3).to("spmdx").requires_grad_())
        return len(saved)

    once = torch.compile(lambda x: kept(layers, x), backend="spmdx")
    assert count(torch.compile(layers, backend="spmdx")) > count(once)


def test_a_compiled_checkpoint_is_planned_as_the_eager_one():
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))
    model = model.double().to("spmdx")
    spmdx.mark_sharding(model[0].weight, mesh, ("data", None))

    def plans_of_a_step(program):
        spmdx.mark_step()
        before = spmdx.debug.counters()["plans_compiled"]
        program(numbers(7, 3).to("spmdx").requires_grad_()).sum().backward()
        spmdx.mark_step()
        spmdx.sync(wait=True)
        model.zero_grad()
        return spmdx.debug.counters()["plans_compiled"] - before

    program = functools.partial(kept, model)
    for _ in range(2):
        plans_of_a_step(program)
    assert plans_of_a_step(torch.compile(program, backend="spmdx")) == 0


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_on_the_cpu_checkpoints_draw_as_without_the_import(backend):
    def draws(program):
        torch.manual_seed(3)
        x = numbers(7, 3).requires_grad_()
        y = program(x)
        y.sum().backward()
        return y.detach(), x.grad

    program = functools.partial(kept, NOISY["dropout"])
    want = draws(NOISY["dropout"])
    got = draws(torch.compile(program, backend=backend) if backend else program)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
