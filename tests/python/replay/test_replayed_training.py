# SPDX-License-Identifier: Apache-2.0
"""Training steps that are replayed leave what they leave when they are traced, bit for bit."""

import functools

import pytest
import spmdx
import torch
from replays import Program, run_twins
from torch import nn
from torch.nn import functional

MESHES = [2, 3, 4, 8]


def mesh_of(devices):
    return spmdx.Mesh(range(devices), (devices,), ("data",))


class Net(nn.Module):
    """Dropout, running statistics, and a matrix of a size that is not even."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(7, 12)
        self.norm = nn.BatchNorm1d(12)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(12, 5)

    def forward(self, x):
        return self.out(self.drop(functional.gelu(self.norm(self.wide(x)))))


@functools.cache
def host_batch(call):
    draw = torch.Generator().manual_seed(call)
    return torch.randn(24, 7, generator=draw), torch.randint(5, (24,), generator=draw)


def batch_on(mesh):
    def batch(call):
        x, y = (tensor.to("spmdx") for tensor in host_batch(call))
        spmdx.mark_sharding(x, mesh, ("data", None))
        spmdx.mark_sharding(y, mesh, ("data",))
        return x, y

    return batch


def training(mesh, optimizer, clip=None, cut=True):
    def make():
        model = Net().to("spmdx")
        if cut:
            spmdx.mark_sharding(model.wide.weight, mesh, ("data", None))
        optim = optimizer(model.parameters())

        def step(x, y):
            loss = functional.cross_entropy(model(x), y)
            optim.zero_grad()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optim.step()
            return loss.detach()

        return Program(step, model, optim)

    return make


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.01),
    "Adam, one by one": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False),
    "Adam, fused": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "AdamW, amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True, maximize=True),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, momentum=0.5, centered=True),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_steps_as_when_it_is_traced(name):
    mesh = mesh_of(4)
    step = run_twins(training(mesh, OPTIMIZERS[name]), batch_on(mesh), 24)
    assert step.replayed >= 16, step.reasons


@pytest.mark.parametrize("name", ["NAdam", "RAdam", "ASGD", "Adafactor"])
def test_what_cannot_be_replayed_of_an_optimizer_is_traced(name):
    mesh = mesh_of(4)
    optimizer = getattr(torch.optim, name)
    run_twins(training(mesh, lambda p: optimizer(p, lr=1e-2)), batch_on(mesh), 24)


@pytest.mark.parametrize("devices", MESHES)
def test_adam_with_clipping_on_meshes(devices):
    mesh = mesh_of(devices)
    make = training(mesh, OPTIMIZERS["AdamW"], clip=0.5, cut=devices != 8)
    step = run_twins(make, batch_on(mesh), 24)
    assert step.replayed >= 16, step.reasons


def test_a_hundred_steps_with_a_schedule():
    mesh = mesh_of(4)
    schedules = {}

    def between(program, call):
        if program not in schedules:
            schedules[program] = torch.optim.lr_scheduler.CosineAnnealingLR(program.optimizer, 100)
        elif call:
            schedules[program].step()

    Program.__hash__ = object.__hash__
    make = training(mesh, OPTIMIZERS["AdamW"], clip=1.0)
    step = run_twins(make, batch_on(mesh), 100, between)
    assert step.replayed >= 90, step.reasons


def test_a_learning_rate_that_is_set_now_and_then():
    mesh = mesh_of(2)

    def between(program, call):
        if call % 7 == 0:
            program.optimizer.param_groups[0]["lr"] = 0.1 / (1 + call)

    step = run_twins(training(mesh, OPTIMIZERS["SGD, momentum"]), batch_on(mesh), 60, between)
    assert step.replayed >= 35, step.reasons


def test_gradients_that_are_accumulated():
    mesh = mesh_of(3)

    def make():
        model = Net().to("spmdx")
        optim = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x, y, last):
            loss = functional.cross_entropy(model(x), y) / 4
            loss.backward()
            if last:
                optim.step()
                optim.zero_grad()
            return loss.detach()

        return Program(step, model, optim)

    batch = batch_on(mesh)
    step = run_twins(make, lambda call: (*batch(call), call % 4 == 3), 60)
    assert step.replayed >= 15, step.reasons


def test_gradients_that_are_kept_as_zeros():
    mesh = mesh_of(2)

    def make():
        model = Net().to("spmdx")
        optim = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optim.zero_grad(set_to_none=False)
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optim.step()
            return loss

        return Program(step, model, optim)

    step = run_twins(make, batch_on(mesh), 24)
    assert step.replayed >= 15, step.reasons


def test_autocast_and_a_scaler():
    mesh = mesh_of(2)

    def make():
        model = Net().to("spmdx")
        optim = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("spmdx", init_scale=64.0, growth_interval=5)

        def step(x, y):
            optim.zero_grad()
            with torch.autocast("spmdx", torch.bfloat16):
                loss = functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optim)
            scaler.update()
            return loss.detach()

        return Program(step, model, optim)

    run_twins(make, batch_on(mesh), 20)


def test_autocast():
    mesh = mesh_of(2)

    def make():
        model = Net().to("spmdx")
        optim = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optim.zero_grad()
            with torch.autocast("spmdx", torch.bfloat16):
                loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optim.step()
            return loss.detach()

        return Program(step, model, optim)

    step = run_twins(make, batch_on(mesh), 24)
    assert step.replayed >= 15, step.reasons


def test_what_is_done_to_a_model_between_calls_counts():
    mesh = mesh_of(4)

    def between(program, call):
        model = program.model
        if call == 8:
            model.out.weight.data.mul_(0.5)
        if call == 12:
            model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()})
        if call == 20:
            model.eval()
        if call == 28:
            model.train()
            model.wide.requires_grad_(False)
        if call == 36:
            model.wide.requires_grad_(True)
        if call == 44:
            torch.manual_seed(1)
            model.out = nn.Linear(12, 5).to("spmdx")
            program.optimizer.add_param_group({"params": model.out.parameters()})
        if call == 52:
            spmdx.mark_sharding(model.out.weight, mesh, (None, "data"))
        if call == 60:
            spmdx.manual_seed(5)

    step = run_twins(training(mesh, OPTIMIZERS["AdamW"]), batch_on(mesh), 70, between)
    assert step.replayed >= 25, step.reasons


def test_a_batch_that_is_smaller_now_and_then():
    mesh = mesh_of(2)
    batch = batch_on(mesh)

    def cut(call):
        x, y = batch(call)
        return (x[:10], y[:10]) if call % 9 == 8 else (x, y)

    step = run_twins(training(mesh, OPTIMIZERS["SGD"]), cut, 60)
    assert step.replayed >= 35, step.reasons


def test_results_and_gradients_of_earlier_calls_stay():
    mesh = mesh_of(2)
    make = training(mesh, OPTIMIZERS["SGD"])
    torch.manual_seed(0)
    program = make()
    step = spmdx.compile(program.step)
    batch = batch_on(mesh)
    kept, copies = [], []
    for call in range(12):
        result = step(*batch(call))
        gradient = program.model.out.weight.grad
        kept.append((result, gradient))
        copies.append((result.cpu(), gradient.cpu()))
    assert step.replayed >= 8
    for (x, g), (y, h) in zip(kept, copies, strict=True):
        assert torch.equal(x.cpu(), y)
        assert torch.equal(g.cpu(), h)


SCHEDULES = {
    "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.97),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 30),
    "of a function": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n)),
    "steps": lambda o: torch.optim.lr_scheduler.StepLR(o, 10, 0.5),
    "one after the other": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, total_iters=12),
            torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
        ],
        [12],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("optimizer", ["AdamW", "SGD, momentum"])
def test_a_schedule_that_is_stepped_within(name, optimizer):
    mesh = mesh_of(2)

    def make():
        model = Net().to("spmdx")
        optim = OPTIMIZERS[optimizer](model.parameters())
        schedule = SCHEDULES[name](optim)

        def step(x, y):
            optim.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optim.step()
            schedule.step()
            return loss.detach()

        made = Program(step, model, optim)
        made.schedule = schedule
        programs.append(made)
        return made

    programs = []
    step = run_twins(make, batch_on(mesh), 50)
    assert step.replayed >= 25, step.reasons
    traced, compiled = (vars(program.schedule) for program in programs)
    for key in ("last_epoch", "_last_lr", "_step_count"):
        assert traced.get(key) == compiled.get(key)
    assert traced["optimizer"].param_groups[0]["lr"] == compiled["optimizer"].param_groups[0]["lr"]
