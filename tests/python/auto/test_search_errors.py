# SPDX-License-Identifier: Apache-2.0
"""What a search refuses, and what it warns of."""

import re
import warnings

import pytest
import searched
import spmdx
import torch


def search(program, step=None, batch=None, **kwargs):
    return spmdx.auto.search(
        step or program.step,
        program.model,
        program.optimizer,
        program.batch if batch is None else batch,
        **{"devices": 4, **kwargs},
    )


@pytest.mark.parametrize(
    "kwargs, said",
    [
        ({"devices": 0}, "devices is 0. Expected a number, at least 1"),
        ({"devices": 2.0}, "devices is 2.0. Expected a number, at least 1"),
        ({"memory_limit": -5}, "memory_limit is -5. Expected a number of bytes"),
        ({"memory_limit": "many"}, "'many'"),
        ({"zero": (0, 4)}, r"zero is (0, 4). Expected some of (0, 1, 2, 3)"),
        ({"zero": ()}, "zero is (). Expected some of"),
        ({"zero": None}, "zero is None. Expected some of"),
        ({"zero": (1.0,)}, "zero is (1.0,). Expected some of"),
        ({"schedules": None}, "a schedule is None. Expected the name of one"),
        ({"schedules": ("none",)}, "'none'"),
        ({"schedules": (5,)}, "a schedule is 5. Expected the name of one"),
        ({"hardware": "pocket-1"}, "pocket-1"),
        ({"batch": torch.ones(0, 16)}, "[0] samples. Expected equally many in each"),
        ({"batch": (torch.ones(4, 16), torch.ones(8, 2))}, "[4, 8] samples"),
        ({"batch": {}}, "[] samples"),
        ({"step": 3}, "the step is a int. Expected a function of a list of microbatches"),
    ],
)
def test_bad_arguments_are_told(kwargs, said):
    with pytest.raises(spmdx.ShardingError, match=re.escape(said)):
        search(searched.program("mlp", "spmdx"), **kwargs)


def test_a_model_of_another_device_is_told():
    with pytest.raises(spmdx.ShardingError, match="Expected a module on device 'spmdx'"):
        search(searched.program("mlp", "cpu"))


def test_an_optimizer_of_another_model_is_told():
    program, other = searched.program("mlp", "spmdx"), searched.program("mlp", "spmdx")
    program.optimizer = other.optimizer
    with pytest.raises(spmdx.ShardingError, match="holds none of the model's parameters"):
        search(program)


def test_nothing_fits_and_the_number_of_devices_that_would():
    program = searched.program("mlp", "spmdx", samples=16)
    with pytest.raises(spmdx.ShardingError) as caught:
        search(program, devices=2, memory_limit=20_000)
    text = str(caught.value)
    assert "no strategy fits 2 devices of 20,000 bytes" in text and "lacks" in text
    many = int(re.search(r"Pass devices=(\d+)", text)[1])
    assert many > 2
    assert search(program, devices=many, memory_limit=20_000).strategy.devices == many


def test_nothing_fits_whatever_the_number_of_devices():
    with pytest.raises(spmdx.ShardingError, match="Pass a larger limit, a larger batch, or"):
        search(searched.program("mlp", "spmdx"), devices=2, memory_limit=64)


def test_a_step_that_reads_values_is_told_with_its_line():
    program = searched.program("mlp", "spmdx")

    def step(batches):
        for x in batches:
            loss = program.model(x).square().mean()
            loss.backward()
            print(loss.item())

    with pytest.raises(spmdx.ShardingError, match=r"test_search_errors.py:\d+") as caught:
        search(program, step)
    assert "plan_only" in str(caught.value)
    assert all(p.grad is None for p in program.model.parameters())
    assert torch.isfinite(program.model[0].weight.cpu()).all()


def test_a_step_with_effects_of_its_own_warns_and_they_are_undone():
    program = searched.program("mlp", "spmdx")
    losses, counted, scheduler = [], 0, torch.optim.lr_scheduler.StepLR(program.optimizer, 1)

    def step(batches):
        nonlocal counted
        counted += 1
        for x in batches:
            loss = program.model(x).square().mean() / len(batches)
            losses.append(loss)
            loss.backward()
        program.optimizer.step()
        program.optimizer.zero_grad()
        scheduler.step()

    rate, epoch = program.optimizer.param_groups[0]["lr"], scheduler.last_epoch
    with pytest.warns(UserWarning, match="the step changes counted, losses, scheduler") as told:
        search(program, step)
    assert len(told) == 1
    assert (losses, counted) == ([], 0)
    assert (program.optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (rate, epoch)


def test_a_step_without_effects_of_its_own_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(searched.program("mlp", "spmdx"))


def test_a_step_that_raises_leaves_the_model():
    program = searched.program("mlp", "spmdx")

    def step(batches):
        program.model(batches[0]).sum().backward()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        search(program, step)
    assert all(p.grad is None for p in program.model.parameters())
    assert not any("forward" in vars(module) for module in program.model.modules())
    program.step([program.batch.to("spmdx")])


def test_a_batch_that_the_plan_does_not_split_is_told():
    plan = search(searched.program("mlp", "spmdx"))
    object.__setattr__(plan.candidates[0].strategy, "microbatches", 4)
    with pytest.raises(spmdx.ShardingError, match="a multiple of 4"):
        plan.split(torch.ones(6, 16))
