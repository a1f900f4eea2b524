# SPDX-License-Identifier: Apache-2.0
"""Whole models train the same on every mesh as on one device, and move no more than they need."""

import functools
import math

import models
import pytest
import spmdx
import torch
from models import CASES, GPT_TINY, Plan, assert_same, data, run
from spmdx import _C

ONE = Plan((1,), ("data",))
DATA = {n: Plan((n,), ("data",)) for n in (1, 2, 3, 4, 8)}
FULLY = {n: Plan((n,), ("data",), fully_sharded=True) for n in (2, 3, 4, 8)}
TENSOR = {n: Plan((n,), ("model",)) for n in (2, 3, 4, 8)}
MIXED = {
    "4x2": Plan((4, 2), ("data", "model")),
    "2x2x2": Plan((2, 2, 2), ("replica", "data", "model")),
    "4x2 fully": Plan((4, 2), ("data", "model"), fully_sharded=True),
}
SIZES = {"even": (8, 8, 8), "uneven": (7, 7, 7), "short last": (8, 8, 3)}


@functools.cache
def reference(name, sizes, **settings):
    """Plain eager CPU PyTorch; computed once a process."""
    return run(name, data(name, sizes), device="cpu", **settings)


def check(name, plan, sizes, **settings):
    before = spmdx.debug.counters()["fallback_ops"]
    trace = run(name, data(name, sizes), plan, **settings)
    assert_same(trace, reference(name, sizes, **settings))
    assert spmdx.debug.counters()["fallback_ops"] == before, "an op has no rule"
    return trace


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_data_parallel_equals_single_device(name, sizes):
    for devices in (3, 8):
        check(name, DATA[devices], SIZES[sizes])


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_data_parallel_equals_single_device_on_every_count(devices):
    check("gpt", DATA[devices], SIZES["even"])


@pytest.mark.parametrize("name", CASES)
def test_fully_sharded_equals_single_device(name):
    check(name, FULLY[8], SIZES["even"])
    check(name, FULLY[3], SIZES["short last"])


@pytest.mark.parametrize("devices", TENSOR)
@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.tensor_parallel])
def test_tensor_parallel_equals_single_device(name, devices):
    check(name, TENSOR[devices], SIZES["even"])


@pytest.mark.parametrize("plan", MIXED)
@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_two_and_three_axes_equal_single_device(name, plan):
    check(name, MIXED[plan], SIZES["short last"])


@pytest.mark.parametrize("plan", [DATA[8], FULLY[8], TENSOR[8], MIXED["4x2"]], ids=str)
def test_thirty_clipped_and_scheduled_steps_equal_single_device(plan):
    settings = {"clip": 0.5, "schedule": True, "keep_gradients": False}
    trace = check("gpt", plan, (8,) * 30, **settings)
    assert len(set(trace.plans[4:])) == 1, f"plans compiled after each step: {trace.plans}"


def test_batch_norm_statistics_are_those_of_the_whole_batch():
    trace = check("conv", DATA[8], SIZES["even"])
    assert not torch.equal(trace.state["norm1.running_mean"], torch.zeros(8, dtype=torch.float64))


@pytest.mark.parametrize("plan", [DATA[8], TENSOR[4], MIXED["4x2"]], ids=str)
def test_dropout_is_the_same_on_every_mesh(plan):
    def train(plan):
        config = models.Config(**{**vars(GPT_TINY), "dropout": 0.2})
        torch.manual_seed(0)
        model = models.GPT(config).to(torch.float64)
        torch.manual_seed(7)
        return run("gpt", data("gpt", (8, 8)), plan, model=model)

    alone = train(ONE)
    assert_same(train(plan), alone)
    without = reference("gpt", (8, 8))
    assert abs(alone.losses[1] - without.losses[1]) > 1e-6, "dropout dropped nothing"


# --- what is moved and held -----------------------------------------------------------------------


@functools.cache
def steady(plan, name="gpt"):
    """A run of a few equal steps; its report is that of a warm step."""
    _C.clear_cache()  # an equal program of another test would leave nothing to report
    return run(name, data(name, (8,) * 4), plan, clip=1.0, keep_gradients=False)


def parameter_bytes(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


def held_bytes(tensor):
    """Bytes that the most loaded device holds of a tensor."""
    boxes = spmdx.get_sharding(tensor).boxes(tensor.shape)
    elements = max(math.prod(s.stop - s.start for s in box) for box in boxes)
    return elements * tensor.element_size()


def test_data_parallel_moves_only_gradients():
    trace = steady(DATA[8])
    expected = 2 * 7 / 8 * parameter_bytes(trace.model)
    scalars = 2 * 7 / 8 * 8 * 64
    assert expected <= trace.report.wire_bytes <= expected + scalars, str(trace.report)


def test_fully_sharded_holds_an_eighth_between_steps():
    trace = steady(FULLY[8])
    for name, p in trace.model.named_parameters():
        state = trace.optimizer.state[p]
        for what, t in (
            ("", p),
            (" exp_avg", state["exp_avg"]),
            (" exp_avg_sq", state["exp_avg_sq"]),
        ):
            whole = t.numel() * t.element_size()
            assert spmdx.get_sharding(t) is not None, f"{name}{what} has no sharding"
            held = held_bytes(t)
            assert held * 8 <= whole, f"{name}{what}: {held} of {whole} bytes on one device"


def test_fully_sharded_gathers_each_parameter_at_most_twice():
    trace = steady(FULLY[8])
    gathered = sum(c.bytes for c in trace.report.collectives if c.kind == "all_gather")
    assert gathered <= 2 * 7 / 8 * parameter_bytes(trace.model), str(trace.report)
    assert trace.report.count("all_gather") > 0


@pytest.mark.parametrize("plan", [TENSOR[8], MIXED["4x2"]], ids=str)
def test_tensor_parallel_never_gathers_a_weight(plan):
    trace = steady(plan)
    smallest = min(
        p.numel() * p.element_size()
        for n, p in trace.model.named_parameters()
        if "attention.q.weight" in n
    )
    model_axis = [c for c in trace.report.collectives if "model" in c.axes]
    assert model_axis, "tensor parallel without a collective cannot be right"
    for c in model_axis:
        assert c.kind != "all_gather" or c.bytes < smallest // 4, f"gathers: {c.cause}"


def test_tensor_parallel_reduces_four_times_a_layer():
    _C.clear_cache()
    trace = run("gpt", data("gpt", (8,) * 3), TENSOR[8], keep_gradients=False)
    reduces = sum(c.count for c in trace.report.collectives if c.kind == "all_reduce")
    assert reduces <= 4 * GPT_TINY.layers, str(trace.report)


def test_an_mlp_needs_one_reduction_in_a_column_row_pair():
    _C.clear_cache()
    trace = run("mlp", data("mlp", (8,) * 3), TENSOR[8], keep_gradients=False)
    assert trace.report.count("all_reduce") == 1, str(trace.report)
    assert len(trace.report.collectives) == 1, str(trace.report)


@pytest.mark.parametrize("plan", [DATA[8], FULLY[8], TENSOR[8], MIXED["4x2"]], ids=str)
def test_no_plan_is_made_after_warm_up(plan):
    trace = steady(plan)
    assert trace.plans[-1] == trace.plans[-2], f"plans compiled after each step: {trace.plans}"
