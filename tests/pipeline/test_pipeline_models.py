# SPDX-License-Identifier: Apache-2.0
"""Loops with microbatches give on a mesh, without a pipeline, what they give on one device."""

import math

import pytest
import spmdx
import torch
from hardware import ON_GPU
from messages import eight_devices
from pipeline_equality import ROWS, STEPS, check_equal, reference
from pipeline_loops import LOOPS
from pipeline_models import CASES, data, make

eight_devices()
torch.set_num_threads(1)

MESH = spmdx.Mesh(range(4), (4,), ("data",))
EXACT_LOOPS = [loop for loop in LOOPS if loop != "scaled"]


def check_on_four(model_name, loop, m, **settings):
    """With the rows of each microbatch cut, and without any mark."""
    check_equal(model_name, loop, MESH, 1, m, data_axis="data", **settings)
    check_equal(model_name, loop, MESH, 1, m, **settings)


@pytest.mark.parametrize("name", CASES)
def test_data_parallel_microbatches_equal_one_device(name):
    check_on_four(name, "accumulated", 4)


@pytest.mark.parametrize("loop", EXACT_LOOPS)
def test_every_loop_equals_one_device(loop):
    check_on_four("gpt", loop, 2)
    check_on_four("resnet", loop, 2)


@pytest.mark.parametrize("m", [1, 7])
def test_any_number_of_microbatches_equals_one_device(m):
    check_on_four("gpt without dropout", "clipped", m)


# On the mesh, summands in bfloat16 are added in another order.
@pytest.mark.parametrize("name", ["gpt without dropout", "llama"])
def test_scaled_losses_in_bfloat16_are_near_those_of_one_device(name):
    check_on_four(name, "scaled", 2, relative=0.1 if ON_GPU else 0.05)
    check_equal(name, "scaled", MESH, 1, 2, against="spmdx", relative=1e-9)


def test_microbatches_add_up_to_the_batch():
    whole, parts = (reference("llama", "momentum", m, "cpu") for m in (1, 7))
    for a, b in zip(whole.losses, parts.losses, strict=True):
        assert len(a) == 1 and len(b) == 7 and math.isclose(sum(a), sum(b), rel_tol=1e-12)
    for name, p in whole.parameters.items():
        torch.testing.assert_close(parts.parameters[name], p, rtol=1e-9, atol=1e-11)


def test_models_learn_and_dropout_drops():
    for name in CASES:
        losses = [sum(step) for step in reference(name, "momentum", 1, "cpu").losses]
        assert len(losses) == STEPS and all(map(math.isfinite, losses))
        assert len({round(loss.item(), 9) for loss in losses}) == STEPS
    with_dropout = reference("gpt", "accumulated", 2, "cpu").losses
    assert with_dropout != reference("gpt without dropout", "accumulated", 2, "cpu").losses


@pytest.mark.parametrize("name", CASES)
def test_stages_begin_at_modules_in_the_order_of_the_model(name):
    order = [n for n, _ in make(name).named_modules()]
    for stages, cuts in CASES[name].cuts.items():
        places = [order.index(cut) for cut in cuts]
        assert len(cuts) == stages - 1 and places == sorted(set(places))


def test_rows_of_microbatches_differ():
    ((inputs,), _), *_ = data("gpt", 1, ROWS)
    for m in (2, 4, 7):
        assert len({len(part) for part in inputs.tensor_split(m)}) == 2


def test_marked_microbatches_are_shared_out():
    check_equal("llama", "momentum", MESH, 1, 4, data_axis="data")
    assert spmdx.explain().count("all_reduce") > 0
    check_equal("llama", "momentum", MESH, 1, 4)
    assert spmdx.explain().wire_bytes == 0


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_found(name):
    def prepare(model, mesh):
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] += 1e-6

    with pytest.raises(AssertionError, match="of its largest element"):
        check_equal(name, "evaluated", MESH, 1, 2, prepare=prepare)


def test_cuts_that_name_nothing_are_found():
    with pytest.raises(AssertionError, match="gpt has no modules {'blocks.9'}"):
        check_equal("gpt", "evaluated", MESH, 2, 2, ["blocks.9"])


@pytest.mark.parametrize("loop", EXACT_LOOPS)
def test_nothing_is_read_within_a_step(loop):
    before = spmdx.debug.counters()["implicit_syncs"]
    check_equal("experts", loop, MESH, 1, 2, data_axis="data")
    assert spmdx.debug.counters()["implicit_syncs"] == before


# Between the backward pass of the last microbatch and the optimizer.
def test_a_scaler_reads_once_a_step():
    before = spmdx.debug.counters()["implicit_syncs"]
    check_equal("llama", "scaled", MESH, 1, 4, relative=0.05)
    assert spmdx.debug.counters()["implicit_syncs"] == before + STEPS
