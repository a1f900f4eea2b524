# SPDX-License-Identifier: Apache-2.0
"""Random numbers whose distribution a tensor gives are drawn where it lies."""

import math

import pytest
import spmdx
import torch
import torch.nn.functional as F
from cuts import BATCH, SIZES, line, ran_whole

DEVICES = pytest.mark.parametrize("devices", SIZES)


def shares(shift=0.0):
    return (torch.arange(54.0).reshape(9, 6) / 54 + shift).to("spmdx")


DRAWS = {
    "bernoulli": lambda p: torch.bernoulli(p),
    "bernoulli_": lambda p: torch.empty_like(p).bernoulli_(p),
    "normal of two": lambda p: torch.normal(p, p),
    "normal of a mean": lambda p: torch.normal(p, 2.0),
    "normal of a deviation": lambda p: torch.normal(1.0, p),
    "poisson": lambda p: torch.poisson(p * 30),
    "binomial": lambda p: torch.binomial(p.round() * 50, p),
    "gamma": lambda p: torch._standard_gamma(p),
    "dirichlet": lambda p: torch._sample_dirichlet(p),
    "multinomial": lambda p: torch.multinomial(p, 3),
    "with replacement": lambda p: torch.multinomial(p, 8, replacement=True),
    "rrelu": lambda p: F.rrelu(p - 0.5, training=True),
}


@DEVICES
@pytest.mark.parametrize("name", DRAWS)
def test_drawn_where_the_numbers_lie(name, devices):
    def draw(cut):
        torch.manual_seed(3)
        p = shares(0.01)
        if cut:
            spmdx.mark_sharding(p, line(devices), BATCH)
            spmdx.mark_step()
        drawn = DRAWS[name](p)
        if cut:
            spmdx.mark_sharding(drawn, line(devices), BATCH)
            assert spmdx.explain(drawn).collectives == []
        return drawn.cpu()

    spmdx.debug.reset_counters()
    whole, parts = draw(False), draw(True)
    assert torch.equal(whole, parts) and ran_whole() == {}
    assert whole.unique().numel() > 1


COUNT = 40_000


def many(value):
    return torch.full((COUNT,), value, device="spmdx")


MOMENTS = {  # mean and variance
    "bernoulli": (lambda: torch.bernoulli(many(0.3)), 0.3, 0.21),
    "normal": (lambda: torch.normal(many(2.0), many(3.0)), 2, 9),
    "small poisson": (lambda: torch.poisson(many(3.5)), 3.5, 3.5),
    "large poisson": (lambda: torch.poisson(many(40.0)), 40, 40),
    "small binomial": (lambda: torch.binomial(many(10.0), many(0.2)), 2, 1.6),
    "large binomial": (lambda: torch.binomial(many(100.0), many(0.4)), 40, 24),
    "gamma below one": (lambda: torch._standard_gamma(many(0.4)), 0.4, 0.4),
    "gamma": (lambda: torch._standard_gamma(many(6.0)), 6, 6),
    "log normal": (
        lambda: many(0.0).log_normal_(0.5, 0.25),
        math.exp(0.5 + 0.25**2 / 2),
        math.expm1(0.25**2) * math.exp(1 + 0.25**2),
    ),
    "geometric": (lambda: many(0.0).geometric_(0.25), 4, 12),
    "cauchy within its quartiles": (
        lambda: (many(0.0).cauchy_(1, 2) - 1).abs().lt(2).float(),
        0.5,
        0.25,
    ),
    "multinomial": (
        lambda: torch.multinomial(
            torch.tensor([0.0, 0.2, 0.8, 0.0]).to("spmdx"), COUNT, True
        ).float(),
        1.8,
        0.16,
    ),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_the_moments_are_those_of_the_distribution(name):
    torch.manual_seed(11)
    draw, mean, variance = MOMENTS[name]
    drawn = draw().cpu().double()
    error = math.sqrt(variance / COUNT)
    assert abs(drawn.mean().item() - mean) < 5 * error
    assert abs(drawn.var().item() / variance - 1) < 0.1
