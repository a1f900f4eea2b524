# SPDX-License-Identifier: Apache-2.0
"""Models with activation checkpoints: searched, and estimated as their whole plans are."""

import pytest
import spmdx
import torch
from spmdx._auto.cuts import Given
from spmdx._auto.effects.apart import apart
from spmdx._auto.parts.checkpoints import Again, computed_again
from spmdx._auto.search import Search
from spmdx._auto.space import Space
from spmdx._auto.trial import Program
from spmdx.auto import Strategy
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

WIDTH = 256


class Block(nn.Module):
    def __init__(self, times):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, times * WIDTH), nn.Linear(times * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Short(Block):
    pass


class Net(nn.Module):
    def __init__(self, around, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(Short(1), Block(4)) for _ in range(4))
        self.head, self.around, self.reentrant = nn.Linear(WIDTH, 16), around, reentrant

    def again(self, call, x):
        return checkpoint(call, x, use_reentrant=self.reentrant)

    def forward(self, x):
        return self.head(getattr(self, self.around)(x))

    def one(self, x):
        for first, second in self.blocks:
            x = self.again(second, first(x))
        return x

    def two(self, x):
        for block in self.blocks:
            x = self.again(block, x)
        return x

    def behind(self, x):
        for block in self.blocks:
            x = self.again(lambda x, block=block: block(x) * 2, x)
        return x

    def four(self, x):
        return checkpoint_sequential(nn.Sequential(*self.blocks), 2, x, use_reentrant=False)

    def nested(self, x):
        for at in 0, 2:
            a, b = self.blocks[at], self.blocks[at + 1]
            x = self.again(lambda x, a=a, b=b: self.again(b, self.again(a, x)), x)
        return x


def program(around, reentrant):
    torch.manual_seed(0)
    model = Net(around, reentrant).to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batches):
        for x in batches:
            (model(x.requires_grad_()).square().mean() / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Program(step, model, optimizer), torch.randn(16, 128, WIDTH)


def estimated(strategy, program, batch):
    space = Space(strategy.devices, batch, 0, [strategy.zero], [])
    with apart(*program):
        given = Given(strategy, program.model)
        return Search(program, space)._estimates.given(strategy, given).estimate


KINDS = [(around, way) for around in ("one", "two", "behind", "nested") for way in (False, True)]


@pytest.mark.parametrize("around, reentrant", [*KINDS, ("four", False)])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_estimates_count_what_is_computed_again(around, reentrant):
    spmdx.set_hardware("h100-80", topology="nvlink")
    spmdx.set_memory_limit(None)
    made, batch = program(around, reentrant)
    for strategy in Strategy(data=4), Strategy(data=4, microbatches=2):
        found = spmdx.auto.predict(strategy, *made, batch)
        estimate = estimated(strategy, made, batch)
        assert estimate.step_ns == pytest.approx(found.step_ns, rel=0.02)
        assert estimate.peak_bytes == pytest.approx(found.peak_bytes, rel=0.3)
        assert estimate.wire_bytes == pytest.approx(found.wire_bytes, rel=0.01)


@pytest.mark.parametrize("around, reentrant", [*KINDS, ("four", False)])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_search_gives_a_plan_which_is_that_of_its_strategy(around, reentrant):
    made, batch = program(around, reentrant)
    machine = {"hardware": "h100-80", "topology": "nvlink"}
    plan = spmdx.auto.search(*made, batch, devices=4, zero=0, schedules="1f1b", **machine)
    found = spmdx.auto.predict(plan.strategy, *made, batch, **machine)
    best = plan.candidates[0]
    assert best.step_ns == pytest.approx(found.step_ns, rel=0.05)


def test_how_often_calls_are_computed_again():
    within = [(), (1,), (1,), (2,), (3, 4), (3, 4), (3, 5), (3, 5), (3,), (6, 7), (6, 8), ()]
    again = [(0, 0), (1, 0), (0, 1), (0, 1), (2, 0), (1, 1), (2, 0), (1, 1), (0, 1)]
    again += [(1, 1), (0, 1), (0, 0)]
    assert computed_again(within) == [Again(times, bool(last)) for times, last in again]


def test_calls_of_a_checkpoint_are_what_ran_of_torch():
    """Counted by a module that counts its own calls, in a plain run."""
    calls = []

    class Counted(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name, self.linear = name, nn.Linear(2, 2)

        def forward(self, x):
            calls.append(self.name)
            return torch.tanh(self.linear(x))

    a, b, c, d = (Counted(name) for name in "abcd")

    def inner(*modules):
        return lambda x: checkpoint(nn.Sequential(*modules), x, use_reentrant=False)

    x = torch.ones(1, 2, requires_grad=True)
    checkpoint(lambda x: inner(c, d)(inner(a, b)(x)), x, use_reentrant=False).sum().backward()
    again = computed_again([(1, 2), (1, 2), (1, 3), (1, 3)])
    for name, (times, is_last) in zip("abcd", again, strict=True):
        assert calls.count(name) == 1 + times + is_last
