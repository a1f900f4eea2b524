# SPDX-License-Identifier: Apache-2.0
"""Programs beside the usual: what they read and do beside calling modules is planned as well."""

import re

import pytest
import spmdx
import torch
import torch.nn.functional as F
from spmdx._auto.estimates import Estimates
from spmdx._auto.stages import Strategies
from torch import nn

pytestmark = pytest.mark.usefixtures("double_precision")
SAMPLES = 16


class Lora(nn.Module):
    """Reads the weight of a layer that it never calls."""

    def __init__(self):
        super().__init__()
        self.first, self.base, self.last = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 8)
        self.down, self.up = nn.Parameter(torch.ones(4, 64) / 9), nn.Parameter(torch.ones(64, 4))

    def forward(self, x):
        weight = self.base.weight + self.up @ self.down
        return self.last(F.linear(torch.relu(self.first(x)), weight, self.base.bias))


class Lists(nn.Module):
    """Holds parameters in a list."""

    def __init__(self):
        super().__init__()
        self.ends = nn.ParameterList([torch.ones(8, 32) / 9, torch.ones(32, 8) / 9])
        self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

    def forward(self, x):
        x = x @ self.ends[0]
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return x @ self.ends[1]


def mlp():
    return nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(8, 8), nn.Tanh())))


def loss_of(model, batch, count):
    return (model(batch) - 1).square().mean() / count


def adam(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(batches):
        for batch in batches:
            loss_of(model, batch, len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, optimizer


def batch_of(samples=SAMPLES):
    return torch.linspace(-2, 2, samples * 8).sin().reshape(samples, 8)


def found(make, training=adam, devices=4, samples=SAMPLES, **kwargs):
    """A plan, and what it is of."""
    torch.manual_seed(0)
    model = make().to("spmdx")
    step, optimizer = training(model)
    batch = batch_of(samples)
    plan = spmdx.auto.search(step, model, optimizer, batch, devices=devices, **kwargs)
    return plan, model, step, optimizer


def trained(make, training, batches):
    torch.manual_seed(0)
    model = make()
    step, _ = training(model)
    for _ in range(3):
        step(batches)
    return model.state_dict()


def assert_trains(make, training, plan, model, step, optimizer):
    """As plain PyTorch does with the same microbatches."""
    plan.apply(model, optimizer)
    for _ in range(3):
        step(plan.split(batch_of()))
        spmdx.mark_step()
    parts = spmdx.auto.split(batch_of(), plan.strategy.microbatches)
    for name, value in trained(make, training, parts).items():
        made = model.state_dict()[name].cpu()
        torch.testing.assert_close(made, value, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("topology", ["in-process", "nvlink"])
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("make", [Lora, Lists])
def test_modules_that_are_held_and_never_called_are_cut(make, devices, topology):
    plan, *program = found(make, devices=devices, topology=topology)
    assert "tensor" in {candidate.strategy.family for candidate in plan.candidates}
    assert_trains(make, adam, plan, *program)


def test_what_is_never_called_counts_for_the_number_of_devices():
    with pytest.raises(spmdx.ShardingError) as caught:
        found(Lists, devices=2, memory_limit=20_000)
    many = int(re.search(r"Pass devices=(\d+)", str(caught.value))[1])
    assert many > 2
    assert found(Lists, devices=many, memory_limit=20_000)[0].strategy.devices == many


def looking(look):
    """Training that does something with gradients between backward and the optimizer's step."""

    def training(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(batches):
            for batch in batches:
                loss_of(model, batch, len(batches)).backward()
            look(model)
            optimizer.step()
            optimizer.zero_grad()

        return step, optimizer

    return training


def halved(model):
    for parameter in model.parameters():
        parameter.grad.mul_(0.5)


def normed(model):
    norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
    for parameter in model.parameters():
        parameter.grad = parameter.grad / (norm + 1)


def clipped(model):
    nn.utils.clip_grad_value_(model.parameters(), 0.01)


def by_hand(model):
    def step(batches):
        for batch in batches:
            loss_of(model, batch, len(batches)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None

    return step, None


def by_autograd(model):
    def step(batches):
        own = list(model.parameters())
        for batch in batches:
            gradients = torch.autograd.grad(loss_of(model, batch, len(batches)), own)
            with torch.no_grad():
                for parameter, gradient in zip(own, gradients, strict=True):
                    parameter.sub_(gradient, alpha=0.1)

    return step, None


LOOKING = {look.__name__: looking(look) for look in (halved, normed, clipped)}
LOOKING |= {"by_hand": by_hand, "by_autograd": by_autograd}


@pytest.mark.parametrize("make", [mlp, Lora])
@pytest.mark.parametrize("name", LOOKING)
def test_gradients_can_be_looked_at(name, make):
    plan, *program = found(make, LOOKING[name])
    assert_trains(make, LOOKING[name], plan, *program)


def times(monkeypatch, training, make=Lora):
    """Of the estimates of strategies that are not planned whole, before plans correct them."""
    made, of_all = [], Estimates.of_all

    def noted(*args, **kwargs):
        made.extend(of_all(*args, **kwargs))
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Estimates, "of_all", noted)
        plan, model, *_ = found(make, training, hardware="h100-80", topology="infiniband")
    strategies = Strategies(model)
    estimated = {str(strategies.of(each)): each.estimate.step_ns for each in made}
    return {str(c.strategy): estimated[str(c.strategy)] for c in plan.candidates if not c.planned}


def test_gradients_that_are_looked_at_are_counted_once(monkeypatch):
    def seen(model):
        assert all(parameter.grad is not None for parameter in model.parameters())

    plain = times(monkeypatch, adam)
    assert plain and times(monkeypatch, looking(seen)) == plain
    more = times(monkeypatch, looking(halved))
    common = plain.keys() & more.keys()
    assert common and all(plain[key] < more[key] < 1.5 * plain[key] for key in common)


def test_layers_that_change_their_input_in_place_are_planned():
    def make():
        layers = nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Linear(32, 8), nn.ReLU(inplace=True)
        return nn.Sequential(*layers)

    plan, *program = found(make)
    assert_trains(make, adam, plan, *program)


def test_an_optimizer_that_needs_a_closure_is_told():
    def training(model):
        optimizer = torch.optim.LBFGS(model.parameters())

        def step(batches):
            def closure():
                optimizer.zero_grad()
                loss = sum(loss_of(model, batch, len(batches)) for batch in batches)
                loss.backward()
                return loss

            optimizer.step(closure)

        return step, optimizer

    said = r"test_search_programs.py:\d+: search: the optimizer, LBFGS, cannot be planned"
    with pytest.raises(spmdx.ShardingError, match=said):
        found(mlp, training)


def normed_layers():
    layers = nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)
    return nn.Sequential(*layers)


def sizes(plan, samples=SAMPLES):
    return {samples // candidate.strategy.microbatches for candidate in plan.candidates}


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_batch_norm_refuses_single_samples(devices):
    plan, *program = found(normed_layers, devices=devices)
    assert min(sizes(plan)) == max(2, min(sizes(found(mlp, devices=devices)[0])))
    assert_trains(normed_layers, adam, plan, *program)


class Squeezed(nn.Module):
    """Gives a single sample another shape, which some losses take and some do not."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x))).squeeze()


def with_loss(loss):
    def training(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(batches):
            for batch in batches:
                (loss(model(batch)) / len(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step, optimizer

    return training


@pytest.mark.parametrize("loss", [lambda y: y.log_softmax(1).square().mean(), lambda y: y.mean()])
def test_single_samples_that_get_another_shape_are_left_out(loss):
    plan, *program = found(Squeezed, with_loss(loss), devices=2)
    assert 1 not in sizes(plan) and 2 in sizes(plan)
    assert_trains(Squeezed, with_loss(loss), plan, *program)


def test_a_step_that_raises_for_all_sizes_raises_its_own_error():
    def loss(y):
        raise KeyError(f"{len(y)} samples")

    with pytest.raises(KeyError, match=f"{SAMPLES} samples"):
        found(mlp, with_loss(loss))


def test_large_microbatches_that_raise_are_left_out():
    def loss(y):
        assert len(y) <= 4
        return y.square().mean()

    plan, *program = found(mlp, with_loss(loss), devices=2)
    assert max(sizes(plan)) == 4
    assert_trains(mlp, with_loss(loss), plan, *program)


@pytest.mark.parametrize(
    "kwargs, said",
    [
        ({"schedules": ()}, {"pipeline": "no schedule may be used"}),
        (
            {"schedules": ("interleaved:4",)},
            {
                "pipeline": "the model has 5 parts that hold parameters, too few for the 16 stages "
                "of interleaved:4"
            },
        ),
        (
            {"zero": 3},
            dict.fromkeys(
                ("tensor", "pipeline"), 'zero has 3, which shares along "data", and not 0'
            ),
        ),
        (
            {"devices": 5},
            {
                "data": "a batch of 16 is no multiple of 5 samples",
                "tensor": "no dim of a parameter is a multiple of 5",
                "hybrid": "5 is no product of two sizes",
            },
        ),
        (
            {"devices": 8},
            {"pipeline": "the model has 5 parts that hold parameters, too few for 8 stages"},
        ),
        ({}, {}),
    ],
)
def test_why_there_is_no_strategy_of_a_family(kwargs, said):
    def make():
        return nn.Sequential(*(m for _ in range(5) for m in (nn.Linear(8, 8), nn.Tanh())))

    assert found(make, **kwargs)[0].unfit == said
