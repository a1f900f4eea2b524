# SPDX-License-Identifier: Apache-2.0
"""Random numbers are the same on every mesh and spec, and are distributed as they should be."""

import math

import models
import pytest
import spmdx
import torch
import torch.utils.checkpoint
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


def ones(*shape):
    return torch.ones(shape or SHAPE, device=DEV)


def shares(shift=0.0):
    return torch.arange(54.0).reshape(SHAPE).div(54).to(DEV) + shift


def attend():
    x = ones(2, 2, 4, 8)
    return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3)


FUNCTIONS = {
    "bernoulli of a tensor": lambda: torch.bernoulli(shares()),
    "multinomial": lambda: torch.multinomial(shares(0.1), 4),
    "multinomial with replacement": lambda: torch.multinomial(shares(0.1), 20, replacement=True),
    "poisson": lambda: torch.poisson(shares() * 5),
    "binomial": lambda: torch.binomial(ones() * 10, shares()),
    "standard_gamma": lambda: torch._standard_gamma(shares(0.5)),
    "dirichlet": lambda: torch._sample_dirichlet(shares(0.5)),
    "normal of two tensors": lambda: torch.normal(shares(), shares(0.1)),
    "normal of a mean": lambda: torch.normal(shares(), 2.0),
    "normal of a deviation": lambda: torch.normal(1.0, shares(0.1)),
    "randn_like": lambda: torch.randn_like(ones()),
    "randint_like": lambda: torch.randint_like(ones(), 3, 900),
    "rand bfloat16": lambda: torch.rand(SHAPE, device=DEV, dtype=torch.bfloat16),
    "rand complex": lambda: torch.rand(SHAPE, device=DEV, dtype=torch.complex64),
    "randn complex": lambda: torch.randn(SHAPE, device=DEV, dtype=torch.complex64),
    "native_dropout": lambda: torch.native_dropout(ones(), 0.3, True)[0],
    "dropout1d": lambda: nn.functional.dropout1d(ones(4, 16, 3), 0.4),
    "dropout2d": lambda: nn.functional.dropout2d(ones(4, 16, 3, 3), 0.4),
    "dropout3d": lambda: nn.functional.dropout3d(ones(4, 16, 3, 3, 3), 0.4),
    "alpha_dropout": lambda: nn.functional.alpha_dropout(ones(), 0.4, training=True),
    "feature_alpha_dropout": lambda: nn.functional.feature_alpha_dropout(ones(4, 16, 3), 0.4, True),
    "rrelu": lambda: nn.functional.rrelu(-ones(), training=True),
    "gumbel_softmax": lambda: nn.functional.gumbel_softmax(shares(), hard=True, dim=0),
    "attention with dropout": attend,
    "distributions.Normal": lambda: torch.distributions.Normal(shares(), shares(1)).sample(),
    "distributions.Beta": lambda: torch.distributions.Beta(shares(1), shares(1)).sample(),
    "distributions.Categorical": lambda: torch.distributions.Categorical(shares(1)).sample((9,)),
    "distributions.StudentT": lambda: torch.distributions.StudentT(shares(3)).sample(),
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
    "bernoulli_ of a tensor": lambda t: t.bernoulli_(shares()),
    "cauchy_": lambda t: t.cauchy_(1.0, 2.0),
    "log_normal_": lambda t: t.log_normal_(1.0, 0.5),
    "geometric_": lambda t: t.geometric_(0.03),
    "random_ whole range": lambda t: t.random_(),
    "init.orthogonal_": nn.init.orthogonal_,
    "init.sparse_": lambda t: nn.init.sparse_(t, 0.3),
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
        if value.dim():
            spmdx.mark_sharding(value, mesh, (*plan[1], None, None, None)[: value.dim()])
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


FIXED = ("constant_", "dirac_", "eye_", "ones_", "zeros_")  # draw nothing


def test_every_initialiser_of_pytorch_is_tried():
    known = {n for n in dir(nn.init) if n.endswith("_") and not n.startswith("_")}
    assert known - set(FIXED) <= {name.removeprefix("init.") for name in IN_PLACE}


@pytest.mark.parametrize("name", FIXED)
def test_initialisers_without_chance_fill_the_same_on_every_mesh(name):
    shape = (6, 9, 3) if name == "dirac_" else SHAPE
    arguments = (3.0,) if name == "constant_" else ()
    want = getattr(nn.init, name)(torch.empty(shape), *arguments)
    for sizes, spec in PLANS:
        t = torch.empty(shape, device=DEV)
        spmdx.mark_sharding(t, mesh_of(sizes), (*spec, None)[: t.dim()])
        assert torch.equal(getattr(nn.init, name)(t, *arguments).cpu(), want)


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


class Noisy(nn.Module):
    """Draws in three ways, the last one by an op without a counter-based form."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 12, dtype=torch.float64)

    def forward(self, x):
        y = nn.functional.dropout(self.linear(x), 0.5).square()
        y = y * torch.rand_like(y) + torch.randn(12, device=y.device, dtype=y.dtype)
        return nn.functional.rrelu(y, training=True) * torch.bernoulli(y.detach().sigmoid())


def gradients(plan, checkpointed, reentrant=False):
    """Of two steps of a Noisy layer whose weight and batch are cut."""
    torch.manual_seed(0)
    model = Noisy().to(DEV)
    x = torch.randn(16, 10, dtype=torch.float64).to(DEV).requires_grad_()
    mesh = mesh_of(plan[0])
    spmdx.mark_sharding(x, mesh, plan[1])
    spmdx.mark_sharding(model.linear.weight, mesh, plan[1][::-1])
    for _ in range(2):
        if checkpointed:
            y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant)
        else:
            y = model(x)
        y.sum().backward()
    return [x.grad.cpu(), model.linear.weight.grad.cpu(), model.linear.bias.grad.cpu()]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_in_a_checkpoint_replays_the_draws_on_every_mesh(reentrant):
    want = gradients(PLANS[0], False)
    for plan in PLANS:
        for a, b in zip(gradients(plan, True, reentrant), want, strict=True):
            models.assert_equal(a, b, f"a gradient on mesh {plan[0]} with spec {plan[1]}")


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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_both_parts_of_complex_numbers_are_uniform_and_differ(dtype):
    x = torch.zeros(4096, device=DEV, dtype=dtype).uniform_(2, 5).cpu()
    assert not torch.equal(x.real, x.imag)
    for part in (x.real, x.imag):
        assert 2 <= part.min() < 2.01 and 4.99 < part.max() < 5
        assert abs(part.mean() - 3.5) < 0.06


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
