# SPDX-License-Identifier: Apache-2.0
"""What a plan is applied to, and the memory limit that it sets."""

import dataclasses
import re

import pytest
import searched
import spmdx
import torch
from spmdx.auto import Strategy


def search(program, **kwargs):
    given = {"devices": 4, "hardware": "h100-80", "topology": "nvlink", **kwargs}
    return spmdx.auto.search(program.step, program.model, program.optimizer, program.batch, **given)


def with_strategy(plan, **kwargs):
    chosen = dataclasses.replace(plan.candidates[0], strategy=Strategy(**kwargs))
    return dataclasses.replace(plan, candidates=[chosen])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (3, "AutoPlan.apply: the first argument is a int. Expected a torch.nn.Module"),
        (searched.mlp(), "Expected a module on device 'spmdx'"),
        (torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4)}).to("spmdx"), "0.bias is not in"),
        (torch.nn.Sequential(torch.nn.Linear(16, 32)).to("spmdx"), "is not in the model as"),
    ],
    ids=["no model", "of the CPU", "other names", "other shapes"],
)
@pytest.mark.parametrize("strategy", [{"data": 4}, {"data": 4, "zero": 3}])
def test_another_model_is_refused(model, said, strategy):
    plan = with_strategy(search(searched.program("mlp", "spmdx")), **strategy)
    with pytest.raises(spmdx.ShardingError, match=re.escape(said)):
        plan.apply(model)


def test_another_optimizer_is_refused_and_none_where_there_is_zero():
    program, other = searched.program("mlp", "spmdx"), searched.program("mlp", "spmdx")
    plan = search(program)
    with pytest.raises(spmdx.ShardingError, match="holds none of the model's parameters"):
        with_strategy(plan, data=4).apply(program.model, other.optimizer)
    with pytest.raises(spmdx.ShardingError, match="has ZeRO 2, and there is no optimizer"):
        with_strategy(plan, data=4, zero=2).apply(program.model)
    assert not any(spmdx.get_annotation(p) for p in program.model.parameters())
    plan.apply(other.model, other.optimizer)  # one like it


def test_a_limit_that_was_passed_is_set_by_apply_and_by_code():
    program = searched.program("mlp", "spmdx")
    plan = search(program, memory_limit="1 GiB")
    assert spmdx.get_memory_limit() is None
    plan.apply(program.model, program.optimizer)
    assert spmdx.get_memory_limit() == 2**30
    spmdx.set_memory_limit(None)
    exec(plan.code(), {"model": program.model, "optimizer": program.optimizer})
    assert spmdx.get_memory_limit() == 2**30


def test_a_limit_that_changes_nothing_and_was_not_passed_is_not_set():
    program = searched.program("mlp", "spmdx")
    plan = search(program)
    plan.apply(program.model, program.optimizer)
    assert spmdx.get_memory_limit() is None and "limit" not in plan.code()


def test_a_plan_that_computes_again_does_so_when_it_is_applied():
    program = searched.program("gpt", "spmdx", samples=64)
    plan = search(program, devices=2, memory_limit=1_000_000, zero=(0,))
    tight = next(
        c for c in plan.candidates if c.planned and c.recomputed_ns and not c.strategy.pipe > 1
    )
    spmdx.set_hardware("h100-80", topology="nvlink")
    spmdx.set_memory_limit(None)
    plan = dataclasses.replace(plan, candidates=[tight], limit_was_passed=False)
    plan.apply(program.model, program.optimizer)
    for _ in range(3):
        program.step(plan.split(program.batch))
        spmdx.mark_step()
    assert spmdx.explain().memory.recomputed
    assert spmdx.explain().peak_bytes <= 1_000_000
