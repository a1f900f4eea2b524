# SPDX-License-Identifier: Apache-2.0
"""Random numbers are the same on every mesh and spec, and are distributed as they should be."""

import math

import models  # noqa: F401 - sets the number of devices
import pytest
import spmdx
import torch
from torch import nn

DEV = "spmdx"
SHAPE = (6, 9)
PLANS = [
    ((1,), (None, None)),
    ((2,), ("x", None)),
    ((3,), ("x", None)),
    ((4,), ("x", None)),
    ((4,), (None, "x")),
    ((8,), ("x", None)),
    ((8,), (None, "x")),
    ((4, 2), ("x", "y")),
    ((4, 2), (("y", "x"), None)),
    ((2, 2, 2), ("z", ("x", "y"))),
]

FUNCTIONS = {
    "rand": lambda: torch.rand(SHAPE, device=DEV),
    "randn": lambda: torch.randn(SHAPE, device=DEV),
    "randn double": lambda: torch.randn(SHAPE, device=DEV, dtype=torch.float64),
    "rand_like": lambda: torch.rand_like(torch.empty(SHAPE, device=DEV)),
    "randint": lambda: torch.randint(-5, 17, SHAPE, device=DEV),
    "bernoulli": lambda: torch.bernoulli(torch.full(SHAPE, 0.3, device=DEV)),
    "normal": lambda: torch.normal(2.0, 3.0, SHAPE, device=DEV),
    "dropout": lambda: nn.functional.dropout(torch.ones(SHAPE, device=DEV), 0.4),
}
IN_PLACE = {
    "normal_": lambda t: t.normal_(1.0, 2.0),
    "uniform_": lambda t: t.uniform_(-2.0, 3.0),
    "bernoulli_": lambda t: t.bernoulli_(0.25),
    "exponential_": lambda t: t.exponential_(2.0),
    "random_": lambda t: t.random_(0, 100),
    "init.uniform_": nn.init.uniform_,
    "init.normal_": nn.init.normal_,
    "init.trunc_normal_": nn.init.trunc_normal_,
    "init.xavier_uniform_": nn.init.xavier_uniform_,
    "init.xavier_normal_": nn.init.xavier_normal_,
    "init.kaiming_uniform_": nn.init.kaiming_uniform_,
    "init.kaiming_normal_": nn.init.kaiming_normal_,
}


def mesh_of(shape):
    return spmdx.Mesh(range(math.prod(shape)), shape, tuple("xyz"[: len(shape)]))


def draw(make, plan, seed=5):
    """Three draws under one seed, each marked with the plan's spec."""
    torch.manual_seed(seed)
    mesh = mesh_of(plan[0])
    values = [make() for _ in range(3)]
    for value in values:
        spmdx.mark_sharding(value, mesh, plan[1])
    return [value.cpu() for value in values]


def assert_identical_on_all(make):
    alone = draw(make, PLANS[0])
    assert not torch.equal(alone[0], alone[1]), "two draws are equal"
    for plan in PLANS[1:]:
        for i, (a, b) in enumerate(zip(draw(make, plan), alone, strict=True)):
            assert torch.equal(a, b), f"draw {i} differs on mesh {plan[0]} with spec {plan[1]}"
    assert not torch.equal(draw(make, PLANS[0], seed=6)[0], alone[0]), "the seed does not matter"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_factories_draw_the_same_on_every_mesh(name):
    assert_identical_on_all(FUNCTIONS[name])


@pytest.mark.parametrize("name", IN_PLACE)
def test_filling_in_place_draws_the_same_on_every_mesh(name):
    def make():
        t = torch.empty(SHAPE, device=DEV)
        IN_PLACE[name](t)
        return t

    assert_identical_on_all(make)


@pytest.mark.parametrize("name", IN_PLACE)
def test_filling_a_tensor_marked_before_draws_the_same_on_every_mesh(name):
    def filled(plan):
        torch.manual_seed(5)
        t = torch.empty(SHAPE, device=DEV)
        spmdx.mark_sharding(t, mesh_of(plan[0]), plan[1])
        with torch.no_grad():
            IN_PLACE[name](t)
        return t.cpu()

    alone = filled(PLANS[0])
    for plan in PLANS[1:]:
        assert torch.equal(filled(plan), alone), f"differs on mesh {plan[0]} with spec {plan[1]}"


def test_randperm_is_the_same_permutation_on_every_mesh():
    def permutation(devices):
        torch.manual_seed(3)
        t = torch.randperm(101, device=DEV)
        spmdx.mark_sharding(t, mesh_of((devices,)), ("x",))
        return t.cpu()

    alone = permutation(1)
    assert alone.sort().values.tolist() == list(range(101)) and alone.tolist() != list(range(101))
    for devices in (2, 3, 4, 8):
        assert torch.equal(permutation(devices), alone)


def test_a_sharded_initialisation_is_drawn_without_communication():
    t = torch.empty(64, 64, device=DEV)
    spmdx.mark_sharding(t, mesh_of((8,)), ("x", None))
    nn.init.normal_(t)
    spmdx.mark_step()
    assert spmdx.explain().wire_bytes == 0


def test_dropout_scales_and_its_gradient_uses_the_same_mask():
    torch.manual_seed(0)
    x = torch.ones(64, 50, device=DEV, requires_grad=True)
    spmdx.mark_sharding(x, mesh_of((8,)), ("x", None))
    y = nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
    assert set(y.detach().cpu().unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}


def test_recomputation_in_a_checkpoint_replays_the_draws():
    def gradient(checkpointed):
        torch.manual_seed(0)
        x = torch.ones(16, 10, device=DEV, requires_grad=True)

        def f(x):
            return nn.functional.dropout(x * 2.0, 0.5).square()

        y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False) if checkpointed else f(x)
        y.sum().backward()
        return x.grad.cpu()

    assert torch.equal(gradient(True), gradient(False))


def test_the_state_can_be_saved_and_restored():
    torch.manual_seed(1)
    state = torch.spmdx.get_rng_state()
    first = torch.rand(10, device=DEV).cpu()
    torch.spmdx.set_rng_state(state)
    assert torch.equal(torch.rand(10, device=DEV).cpu(), first)


def test_spmdx_manual_seed_equals_torch_manual_seed():
    torch.manual_seed(9)
    a = torch.randn(20, device=DEV).cpu()
    spmdx.manual_seed(9)
    assert torch.equal(torch.randn(20, device=DEV).cpu(), a)


# --- statistics -----------------------------------------------------------------------------------

N = 200_000
CLOSE = 5 / math.sqrt(N)  # five standard errors of a mean of unit variance


def sample(make, seed=11):
    torch.manual_seed(seed)
    t = make()
    spmdx.mark_sharding(t, mesh_of((8,)), ("x",))
    return t.cpu().double()


def largest_cdf_error(values, cdf):
    """The Kolmogorov-Smirnov statistic; below 2 / sqrt(N) unless something is wrong."""
    ordered = values.sort().values
    steps = torch.arange(1, len(values) + 1, dtype=torch.float64) / len(values)
    return (cdf(ordered) - steps).abs().max().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_are_uniform(dtype):
    u = sample(lambda: torch.rand(N, device=DEV, dtype=dtype))
    assert 0 <= u.min() and u.max() < 1
    assert largest_cdf_error(u, lambda x: x) < 2 / math.sqrt(N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_are_normal(dtype):
    z = sample(lambda: torch.randn(N, device=DEV, dtype=dtype))
    assert abs(z.mean()) < CLOSE and abs(z.var() - 1) < 2 * CLOSE and abs((z**3).mean()) < 4 * CLOSE
    assert largest_cdf_error(z, torch.special.ndtr) < 2 / math.sqrt(N)
    assert abs((z[1:] * z[:-1]).mean()) < CLOSE, "neighbours are correlated"


def test_exponential_numbers_are_exponential():
    x = sample(lambda: torch.empty(N, device=DEV).exponential_(2.0))
    assert x.min() >= 0
    assert largest_cdf_error(x, lambda t: 1 - torch.exp(-2.0 * t)) < 2 / math.sqrt(N)


def test_bernoulli_and_randint_have_the_right_shares():
    b = sample(lambda: torch.empty(N, device=DEV).bernoulli_(0.3))
    assert set(b.unique().tolist()) == {0.0, 1.0} and abs(b.mean() - 0.3) < CLOSE
    r = sample(lambda: torch.randint(3, 13, (N,), device=DEV))
    shares = torch.bincount(r.long(), minlength=13)[3:] / N
    assert r.min() == 3 and r.max() == 12 and (shares - 0.1).abs().max() < CLOSE


def test_the_shards_of_a_tensor_differ():
    t = sample(lambda: torch.rand(800, device=DEV))
    assert t.unique().numel() > 780 and torch.unique(t.view(8, 100)[:, 0]).numel() == 8
