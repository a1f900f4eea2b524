# SPDX-License-Identifier: Apache-2.0
"""Strategies that are searched for change no result, whichever of them is taken."""

import dataclasses
import functools

import pytest
import searched
import spmdx
import torch

pytestmark = pytest.mark.usefixtures("double_precision")


def found(name, devices, **kwargs):
    program = searched.program(name, "spmdx")
    plan = spmdx.auto.search(
        program.step,
        program.model,
        program.optimizer,
        program.batch,
        devices=devices,
        hardware="h100-80",
        topology="infiniband",
        **kwargs,
    )
    return program, plan


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("name", searched.MODELS)
def test_the_chosen_strategy_trains_as_one_device_does(name, devices):
    samples = 12 if devices == 3 else 16
    program = searched.program(name, "spmdx", samples)
    plan = spmdx.auto.search(
        program.step, program.model, program.optimizer, program.batch, devices=devices
    )
    assert plan.strategy.devices == devices
    plan.apply(program.model, program.optimizer)
    expected = searched.trained(searched.program(name, "cpu", samples), lambda batch: [batch])
    assert_close(searched.trained(program, plan.split), expected)


@pytest.mark.parametrize("name", ["gpt", "tied", "own"])
def test_the_best_strategy_of_each_family_trains_as_one_device_does(name):
    _, plan = found(name, 4)
    expected = searched.trained(searched.program(name, "cpu"), lambda batch: [batch])
    families = {}
    for candidate in plan.candidates:
        families.setdefault((candidate.strategy.family, candidate.strategy.zero), candidate)
    assert {family for family, _ in families} >= {"data", "tensor", "pipeline", "hybrid"}
    for candidate in families.values():
        program, strategy = searched.program(name, "spmdx"), candidate.strategy
        mesh = strategy.mesh()
        strategy.mark(program.model, program.optimizer, mesh)
        parts = spmdx.auto.split(program.batch, strategy.microbatches)
        made = searched.trained(
            program, lambda _, s=strategy, m=mesh, p=parts: [s.mark_batch(x, m) for x in p]
        )
        assert_close(made, expected)


@pytest.mark.parametrize("place", range(5))
def test_code_says_what_apply_does(place):
    """Both give the same plan: reports are compared, for the best of several families."""
    plan = plan_of_gpt()
    families = {}
    for candidate in plan.candidates:
        families.setdefault((candidate.strategy.family, candidate.strategy.zero), candidate)
    chosen = list(families.values())[place]
    plan = dataclasses.replace(plan, candidates=[chosen])

    def report(apply):
        program = searched.program("gpt", "spmdx")
        split = apply(program)
        for _ in range(2):
            program.step(split(program.batch))
            spmdx.mark_step()
        told = spmdx.explain().to_dict()
        for rows in (told["collectives"], told["values"], told["spans"], told["memory"]["held"]):
            for row in rows:
                row.pop("source")
        return {key: told[key] for key in ("mesh", "collectives", "values", "peak_bytes", "spans")}

    def applied(program):
        plan.apply(program.model, program.optimizer)
        return plan.split

    def pasted(program):
        space = {"model": program.model, "optimizer": program.optimizer}
        exec(plan.code(), space)
        return space["split"]

    assert report(applied) == report(pasted)


@functools.cache
def plan_of_gpt():
    return found("gpt", 8)[1]


def test_a_search_leaves_the_program_as_it_was():
    program = searched.program("gpt", "spmdx")
    mesh = spmdx.get_1d_mesh("data")
    spmdx.mark_sharding(program.model.blocks[0].up.weight, mesh, ("data", None))
    program.step([program.batch.to("spmdx")])
    before = {n: t.cpu().clone() for n, t in program.model.state_dict().items()}
    state = program.optimizer.state_dict()
    kept = {i: {k: v.cpu().clone() for k, v in s.items()} for i, s in state["state"].items()}
    numbers = torch.get_rng_state(), spmdx.get_topology(), spmdx.get_memory_limit()
    hooks = program.optimizer._optimizer_step_post_hooks.copy()

    spmdx.auto.search(
        program.step,
        program.model,
        program.optimizer,
        program.batch,
        devices=16,
        hardware="h100-80",
        topology="infiniband",
    )
    assert_close({n: t.cpu() for n, t in program.model.state_dict().items()}, before)
    for i, held in program.optimizer.state_dict()["state"].items():
        assert_close({k: v.cpu() for k, v in held.items()}, kept[i])
    assert torch.equal(torch.get_rng_state(), numbers[0])
    assert spmdx.get_topology().name == numbers[1].name and spmdx.get_memory_limit() is numbers[2]
    assert program.optimizer._optimizer_step_post_hooks == hooks
    assert all(p.grad is None for p in program.model.parameters())
    marked = {n for n, p in program.model.named_parameters() if spmdx.get_annotation(p)}
    assert marked == {"blocks.0.up.weight"}
    assert not any("forward" in vars(module) for module in program.model.modules())


def test_all_four_families_are_in_the_table():
    plan = plan_of_gpt()
    text = str(plan)
    for family in ("data", "tensor", "pipeline", "hybrid"):
        assert f"│ {family} " in text or f"{family} parallelism alone: " in text
    assert "8 devices (h100-80, 80 GiB each)" in text
    assert plan.candidates[0].planned and not plan.candidates[0].why
    assert all(candidate.why for candidate in plan.candidates[1:])


def test_families_that_cannot_be_say_why():
    _, plan = found("mlp", 32)
    text = str(plan)
    assert "data parallelism alone: a batch of 16 is no multiple of 32 samples" in text
    assert "pipeline parallelism alone: the model has 6 parts that hold parameters, too" in text


def test_a_plan_of_a_machine_that_is_not_here():
    with spmdx.plan_only():
        with torch.device("spmdx"):
            model = searched.Gpt(layers=4)
        optimizer = torch.optim.AdamW(model.parameters())
        step = searched.step_of(model, optimizer)
        plan = spmdx.auto.search(
            step,
            model,
            optimizer,
            searched.ids(512),
            devices=512,
            hardware="a100-80",
            topology="infiniband",
        )
        assert plan.strategy.devices == 512
        plan.apply(model, optimizer)
        for _ in range(2):
            step(plan.split(searched.ids(512).to("spmdx")))
            spmdx.mark_step()
        assert spmdx.explain().peak_bytes > 0


def test_a_model_that_no_device_holds_is_found_a_plan_on_a_machine_that_was_set_before():
    with spmdx.plan_only():
        spmdx.set_hardware("h100-80", topology="infiniband")
        with torch.device("spmdx"):
            layers = [torch.nn.Linear(32768, 32768) for _ in range(32)]  # 128 GiB
            model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.AdamW(model.parameters())
        step = searched.step_of(model, optimizer)
        batch = torch.empty(64, 32768, device="meta")
        plan = spmdx.auto.search(step, model, optimizer, batch, devices=16)
        assert plan.candidates[0].peak_bytes <= 80 * 2**30 == spmdx.get_memory_limit()


def test_one_device_has_one_family():
    _, plan = found("mlp", 1)
    assert plan.strategy.family == "single" and "parallelism alone" not in str(plan)


def test_the_search_is_the_same_each_time():
    first, second = plan_of_gpt(), found("gpt", 8)[1]
    assert [c.strategy for c in first.candidates] == [c.strategy for c in second.candidates]
    assert first.code() == second.code()
