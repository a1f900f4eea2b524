# SPDX-License-Identifier: Apache-2.0
"""What a step reaches by its names is behind a search as it was, and in each call of it."""

import copy
import functools
import types
import warnings

import pytest
import searched
import spmdx
import torch
from torch.optim import lr_scheduler


def search(program, step, devices=4):
    return spmdx.auto.search(step, program.model, program.optimizer, program.batch, devices=devices)


def values(optimizer):
    states = optimizer.state.values()
    return [v.cpu().clone() for state in states for v in state.values()]


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("trained", [False, True])
def test_a_second_model_and_its_optimizer_are_as_before_and_go_on(trained):
    program, other = searched.program("mlp", "spmdx"), searched.program("mlp", "spmdx")

    def step(batches):
        for x in batches:
            (program.model(other.model(x)).square().mean() / len(batches)).backward()
        for optimizer in (program.optimizer, other.optimizer):
            optimizer.step()
            optimizer.zero_grad()

    x = program.batch.to("spmdx")
    if trained:
        step([x])
    before = [t.cpu().clone() for t in other.model.state_dict().values()]
    state = values(other.optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(program, step)
    assert_same([t.cpu() for t in other.model.state_dict().values()], before)
    assert_same(values(other.optimizer), state)
    assert len(other.optimizer.state) == (12 if trained else 0)
    step([x])
    assert all(torch.isfinite(t.cpu()).all() for t in other.model.parameters())


def test_a_second_model_may_lie_on_devices_of_its_own():
    program, other = searched.program("mlp", "spmdx"), searched.program("mlp", "spmdx")
    mesh = spmdx.Mesh(range(8), (8,), ("rows",))
    spmdx.mark_sharding(other.model[0].weight, mesh, ("rows", None))
    other.step([program.batch.to("spmdx")])

    def step(batches):
        for x in batches:
            (program.model(other.model(x)).square().mean() / len(batches)).backward()
        program.optimizer.step()
        program.optimizer.zero_grad()

    before = other.model[0].weight.detach().cpu()
    assert search(program, step).strategy.devices == 4
    assert spmdx.get_annotation(other.model[0].weight).mesh == mesh
    assert torch.equal(other.model[0].weight.detach().cpu(), before)


class Trainer:
    """A step that changes much of its own, and once more than it may."""

    __slots__ = ("__dict__", "count")

    def __init__(self, program, schedule):
        self.program, self.schedule = program, schedule(program.optimizer)
        self.inner = types.SimpleNamespace(n=0, seen={"a": [0]})
        self.cycle, self.count, self.total = self, 0, torch.zeros(())
        self.average = torch.optim.swa_utils.AveragedModel(program.model)

    def step(self, batches):
        assert self.count == self.inner.n == self.inner.seen["a"][0] == self.total == 0
        self.program.step(batches)
        self.schedule.step()
        self.average.update_parameters(self.program.model)
        self.count += 1
        self.inner.n += 1
        self.inner.seen["a"][0] += 1
        self.inner.late = True
        self.total += 1

    def state(self):
        groups = [{**g, "params": 0} for g in self.program.optimizer.param_groups]
        own = self.count, vars(self.inner), self.total.item(), self.average.n_averaged.item()
        return copy.deepcopy((self.schedule.state_dict(), groups, own))


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: lr_scheduler.StepLR(o, 1, 0.5),
        lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=5),
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.1), lr_scheduler.ExponentialLR(o, 0.9)], [2]
        ),
    ],
    ids=["step", "one cycle", "sequence"],
)
def test_what_an_object_holds_is_as_before_in_each_call(schedule):
    trainer = Trainer(searched.program("mlp", "spmdx"), schedule)
    before = trainer.state()
    with pytest.warns(UserWarning, match="test_search_effects.py.* the step changes self. Exp"):
        search(trainer.program, trainer.step)
    assert str(trainer.state()) == str(before)
    trainer.step([trainer.program.batch.to("spmdx")])
    assert trainer.count == 1 and trainer.schedule.last_epoch == 1


TOTAL = 0


def test_attributes_defaults_and_variables_of_functions_are_as_before():
    program, kept, given = searched.program("mlp", "spmdx"), [0], {}

    def helper(batches):
        global TOTAL
        TOTAL += 1
        helper.calls = getattr(helper, "calls", 0) + 1
        program.step(batches)

    def step(history, batches, kept=kept):
        helper(batches)
        kept.append(1)
        history["calls"] = history.get("calls", 0) + 1

    with pytest.warns(UserWarning, match="the step changes TOTAL, helper, partial, step. Exp"):
        search(program, functools.partial(step, given))
    assert (kept, given, TOTAL) == ([0], {}, 0) and not hasattr(helper, "calls")


def test_more_than_is_looked_at_is_told():
    program, rows, counted = searched.program("mlp", "spmdx"), [0] * 1_000_000, [0]

    def step(batches):
        rows.append(counted)
        program.step(batches)

    with pytest.warns(UserWarning, match="reach more than 1,000,000 things. Expected fewer"):
        search(program, step)


@pytest.mark.parametrize(("stage", "trained"), [(1, False), (2, True), (3, True)])
def test_zero_of_the_program_is_out_of_force_in_a_search_and_in_force_behind_it(stage, trained):
    def made():
        program = searched.program("mlp", "spmdx")
        mesh = spmdx.Mesh(range(4), (4,), ("data",))
        spmdx.nn.zero(program.model, program.optimizer, mesh, stage=stage)
        x = spmdx.mark_sharding(program.batch.to("spmdx"), mesh, ("data", None))
        if trained:
            program.step([x])
            spmdx.mark_step()
        return program, x

    def report(program, x):
        for _ in range(2):
            program.step([x])
            spmdx.mark_step()
        told = spmdx.explain()
        marked = [str(spmdx.get_annotation(p)) for p in program.model.parameters()]
        state = program.optimizer.state.values()
        marked += [str(spmdx.get_annotation(v)) for s in state for v in s.values() if v.dim()]
        return told.wire_bytes, told.peak_bytes, marked

    program, x = made()
    plain = searched.program("mlp", "spmdx")
    found = search(program, program.step).candidates
    assert found == search(plain, plain.step).candidates
    strategy = spmdx.auto.Strategy(data=2, zero=2)
    both = [
        spmdx.auto.predict(strategy, p.step, p.model, p.optimizer, p.batch)
        for p in (program, plain)
    ]
    assert both[0] == both[1]
    assert report(program, x) == report(*made())
