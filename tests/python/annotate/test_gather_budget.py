# SPDX-License-Identifier: Apache-2.0
"""A budget for gathered parameters buys gathers, changes no number, and is not overspent."""

import pytest
import spmdx
import torch
from models import Plan, assert_same, data, make, run
from spmdx import _C

MESHES = [2, 3, 4, 8]


@pytest.fixture(autouse=True)
def usual_budget():
    yield
    spmdx.set_gather_budget(0)


def fully_sharded(devices, budget, name="gpt"):
    _C.clear_cache()
    spmdx.set_gather_budget(budget)
    batches = data(name, (24,) * 3)
    return run(name, batches, Plan((devices,), ("data",), fully_sharded=True), keep_gradients=False)


def gathered(trace):
    return sum(c.bytes * c.count for c in trace.report.collectives if c.kind == "all_gather")


def parameter_bytes(name="gpt"):
    return sum(p.numel() * p.element_size() for p in make(name).parameters())


@pytest.mark.parametrize("devices", MESHES)
def test_no_limit_gathers_every_parameter_once(devices):
    trace = fully_sharded(devices, None)
    assert_same(trace, run("gpt", data("gpt", (24,) * 3), device="cpu", keep_gradients=False))
    share = (devices - 1) / devices
    assert gathered(trace) <= share * parameter_bytes() * 1.01 + 8 * devices, str(trace.report)


@pytest.mark.parametrize("devices", MESHES)
def test_a_budget_in_between_buys_what_it_pays_for(devices):
    none, everything = fully_sharded(devices, 0), fully_sharded(devices, None)
    expected = run("gpt", data("gpt", (24,) * 3), device="cpu", keep_gradients=False)
    before = gathered(none)
    for budget in (4_000, 12_000, 30_000):
        some = fully_sharded(devices, budget)
        assert_same(some, expected)
        assert gathered(everything) <= gathered(some) <= before
        assert gathered(none) - gathered(some) <= budget
        assert some.report.peak_bytes - none.report.peak_bytes <= budget
        before = gathered(some)
    assert before < gathered(none)


def test_uneven_parameters_are_kept_whole():
    for devices in (2, 3, 4, 8):
        trace = fully_sharded(devices, None, "mlp")
        assert_same(trace, run("mlp", data("mlp", (24,) * 3), device="cpu", keep_gradients=False))


def test_the_budget_is_part_of_the_plan():
    zero, unlimited = gathered(fully_sharded(4, 0)), gathered(fully_sharded(4, None))
    assert unlimited < zero
    assert gathered(fully_sharded(4, 0)) == zero


def test_get_gives_what_was_set():
    assert spmdx.get_gather_budget() == 0
    for budget in (1, 2**40, None, 0):
        spmdx.set_gather_budget(budget)
        assert spmdx.get_gather_budget() == budget


@pytest.mark.parametrize("wrong", [-1, 2**63, 0.5, "all", True, torch.tensor(3)])
def test_what_is_no_number_of_bytes_is_refused(wrong):
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.set_gather_budget(wrong)
    text = str(caught.value)
    assert "test_gather_budget.py:" in text and "set_gather_budget: the budget is" in text
    assert "Expected" in text and "Write" in text
    assert spmdx.get_gather_budget() == 0
