# SPDX-License-Identifier: Apache-2.0
"""ZeRO: collectives of a step, bucket by bucket, and their bytes by the formulas."""

import pytest
import spmdx
from messages import eight_devices
from zero_programs import OPTIMIZERS, gpt, mesh_of, mlp, one_step

BUCKET = 30 << 20
PROGRAMS = {"MLP of 8 layers": mlp(8), "GPT of 2 blocks": gpt(2), "GPT of 4 blocks": gpt(4)}
MLP = PROGRAMS["MLP of 8 layers"]
OF_THESE = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())


@pytest.fixture(autouse=True)
def devices():
    eight_devices()
    yield
    spmdx.set_memory_limit(None)


def planned(program, stage, n, kind="AdamW", m=1, clip=False):
    """The model, the plan of a step that repeats, and its report."""
    with spmdx.plan_only():
        model, batch = program()
        model = model.to("spmdx")
        optimizer = OPTIMIZERS[kind](model.parameters())
        spmdx.nn.zero(model, optimizer, mesh_of(n), stage=stage)
        for _ in range(3):
            one_step(model, optimizer, batch, mesh_of(n), m, clip)
        return model, spmdx.explain(), spmdx.nn.zero_report(model, optimizer, n)


def sent(report, kind):
    return sum(c.bytes * c.count for c in report.collectives if c.kind == kind)


def size_of(model, n):
    """What a device receives of all parameters, once."""
    return sum(p.numel() * p.element_size() for p in model.parameters()) * (n - 1) // n


@pytest.mark.parametrize("kind", ["AdamW", "momentum"])
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("stage", [1, 2])
@OF_THESE
def test_a_bucket_is_scattered_once_and_gathered_once(program, stage, n, kind):
    """Beside them goes a number: the loss counts its words."""
    model, report, found = planned(program, stage, n, kind)
    assert report.count("reduce_scatter") == report.count("all_gather") == 1
    assert sent(report, "reduce_scatter") == sent(report, "all_gather") == size_of(model, n)
    numbers = sent(report, "all_reduce")
    assert numbers <= 16 and report.wire_bytes - numbers == found.stages[stage].wire


@pytest.mark.filterwarnings("ignore:.*plans were made for the same program")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_adafactor_reads_numbers_so_that_each_parameter_has_its_own_collectives(stage):
    model, batch = MLP()
    model = model.to("spmdx")
    optimizer = OPTIMIZERS["Adafactor"](model.parameters())
    spmdx.nn.zero(model, optimizer, mesh_of(4), stage=stage)
    for _ in range(3):
        spmdx.sync(wait=True)
        before = spmdx.debug.counters()
        one_step(model, optimizer, batch, mesh_of(4))
    spmdx.sync(wait=True)
    after = spmdx.debug.counters()
    tensors = len(list(model.parameters()))
    assert after["steps"] - before["steps"] == 2 * tensors + 1
    assert tensors < after["collectives"] - before["collectives"] <= 3 * tensors
    wire = after["wire_bytes"] - before["wire_bytes"]
    assert 2 * size_of(model, 4) < wire < (1.05 if stage < 3 else 1.4) * 2 * size_of(model, 4)


@pytest.mark.parametrize(
    "stage, kinds", [(1, {"all_reduce"}), (2, {"reduce_scatter", "all_gather"})]
)
def test_an_optimizer_without_state_has_nothing_that_stage_1_cuts(stage, kinds):
    _, report, found = planned(MLP, stage, 4, "SGD")
    assert {c.kind for c in report.collectives} == kinds
    assert all(report.count(kind) == 1 for kind in kinds)
    assert report.wire_bytes == found.stages[stage].wire


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_microbatches_of_a_step_have_a_sum_each_where_gradients_are_cut(stage):
    model, report, _ = planned(MLP, stage, 4, m=3)
    sums = 1 if stage == 1 else 3
    assert report.count("reduce_scatter") == sums
    assert sent(report, "reduce_scatter") == sums * size_of(model, 4)
    if stage < 3:
        assert report.count("all_gather") == 1
        assert sent(report, "all_gather") == size_of(model, 4)


@pytest.mark.parametrize("stage", [1, 2, 3])
@OF_THESE
def test_clipping_sums_a_number_for_each_parameter(program, stage):
    """In stage 1 small gradients may be summed whole, which takes twice their bytes."""
    model, report, _ = planned(program, stage, 4, clip=True)
    size, numbers = size_of(model, 4), sent(report, "all_reduce")
    assert report.count("reduce_scatter") == 1
    if stage > 1:
        assert sent(report, "reduce_scatter") == size
        assert numbers <= 8 * len(list(model.parameters())) + 16
    assert size <= sent(report, "reduce_scatter") + numbers <= 1.06 * size


@pytest.mark.parametrize("stage", [1, 2])
def test_a_full_bucket_is_followed_by_another(stage):
    model, report, _ = planned(mlp(8, width=1536), stage, 4)
    size = size_of(model, 4)
    assert 1 < size / BUCKET < 2
    assert max(c.bytes for c in report.collectives) <= BUCKET
    for kind in ("reduce_scatter", "all_gather"):
        assert report.count(kind) == 2 and sent(report, kind) == size


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("n", [3, 4, 8])
def test_uneven_parts_are_sent_without_padding(stage, n):
    """Bytes of a tensor are rounded down."""
    model, report, found = planned(mlp(8, width=65), stage, n)
    tensors = len(list(model.parameters()))
    size = sum(p.numel() * 4 for p in model.parameters()) * (n - 1) / n
    assert report.count("reduce_scatter") == 1
    assert 0 <= size - sent(report, "reduce_scatter") < tensors
    kept = found.kept_copies + found.not_read if stage == 3 else 0
    assert 0 <= found.stages[stage].wire - kept - report.wire_bytes < 3 * tensors


# ---- stage 3 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["AdamW", "momentum"])
@pytest.mark.parametrize("n", [2, 4, 8])
@OF_THESE
def test_parameters_are_gathered_by_each_pass_but_for_copies_that_are_kept(program, n, kind):
    model, report, found = planned(program, 3, n, kind)
    size, numbers = size_of(model, n), sent(report, "all_reduce")
    assert report.count("reduce_scatter") == 1 and sent(report, "reduce_scatter") == size
    assert sent(report, "all_gather") == 2 * size - found.kept_copies - found.not_read
    wire = found.stages[3].wire - found.kept_copies - found.not_read
    assert numbers <= 16 and report.wire_bytes - numbers == wire
    assert f"{found.kept_copies} bytes are not gathered again" in str(found)


def test_what_a_backward_pass_does_not_read():
    """Biases, and the weight of the first layer: its input has no gradient."""
    model, _, found = planned(MLP, 3, 4)
    biases = sum(p.numel() for p in model.parameters() if p.dim() == 1)
    assert found.not_read == (biases + model[0].weight.numel()) * 4 * 3 // 4


@pytest.mark.parametrize("layers", [8, 24, 48])
def test_two_layers_are_kept_however_deep_the_net_is(layers):
    """The last ones: their copies are read again before 32 nodes have passed."""
    model, report, found = planned(mlp(layers), 3, 4)
    weight = model[0].weight.numel() * 4 * 3 // 4
    assert found.kept_copies == 2 * weight
    assert sent(report, "all_gather") == 2 * size_of(model, 4) - 2 * weight - found.not_read


def test_nothing_is_kept_of_what_is_not_cut():
    _, _, found = planned(MLP, 1, 4)
    assert (found.kept_copies, found.not_read) == (0, 0)
    assert "gathered again" not in str(found)


# ---- memory --------------------------------------------------------------------------------------


def test_no_gradient_waits_where_that_takes_too_much_memory():
    """Few rows of long layers, so that gradients are most of what is held."""
    program = mlp(8, width=512, rows=4096)
    _, free, _ = planned(program, 2, 4)
    spmdx.set_memory_limit(free.peak_bytes)
    _, same, _ = planned(program, 2, 4)
    assert same.count("reduce_scatter") == free.count("reduce_scatter") == 1
    spmdx.set_memory_limit(free.peak_bytes - 1)
    _, less, _ = planned(program, 2, 4)
    assert less.peak_bytes < free.peak_bytes and less.count("reduce_scatter") == 8
    assert less.wire_bytes == free.wire_bytes
