# SPDX-License-Identifier: Apache-2.0
"""State of optimizers in the memory of hosts: who holds how many bytes, and when."""

import gc

import pytest
import spmdx
import torch
from messages import eight_devices
from offload_programs import OPTIMIZERS
from zero_programs import gpt, mesh_of, mlp, one_step

STATES = {"AdamW, one by one": 2, "AdamW, all at once": 2, "SGD, all at once": 1}  # of a parameter
PROGRAMS = {
    "MLP of 8 layers": mlp(8, rows=512),
    "GPT of 2 blocks": gpt(2, sequences=16),
    "uneven MLP": mlp(8, width=65, rows=512),
}
OF_THESE = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())


@pytest.fixture(autouse=True)
def devices():
    eight_devices()
    yield
    spmdx.set_memory_limit(None)
    spmdx._C.set_checks()


def held():
    """Bytes on the device that holds most, counted by the runtime."""
    gc.collect()
    spmdx.sync(wait=True)
    return torch.get_device_module("spmdx").memory_allocated()


def bytes_of(model, n):
    """The largest part of every parameter along the dim of which it is smallest."""
    each = (min(-(-d // n) * (p.numel() // d) for d in p.shape) for p in model.parameters())
    return sum(p * 4 for p in each)


def made(program, kind, n, stage, offload=True):
    model, batch = program()
    model = model.to("spmdx")
    optimizer = OPTIMIZERS[kind](model.parameters())
    spmdx.nn.zero(model, optimizer, mesh_of(n), stage=stage, offload=offload)
    return model, optimizer, batch


def report_of(program, kind, n, stage, offload=True, steps=3):
    model, optimizer, batch = made(program, kind, n, stage, offload)
    for _ in range(steps):
        one_step(model, optimizer, batch, mesh_of(n))
    spmdx.sync(wait=True)
    return model, spmdx.explain()


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("n", [3, 8])
@pytest.mark.parametrize("stage", [1, 2, 3])
@OF_THESE
def test_between_steps_hosts_hold_the_state_and_devices_none(program, stage, n, kind):
    """Parts of uneven dims count as large as the largest; numbers of the optimizer take a few."""
    spmdx.manual_seed(0)
    before = held()
    model, optimizer, batch = made(program, kind, n, stage)
    for _ in range(3):
        one_step(model, optimizer, batch, mesh_of(n))
        assert 0 <= held() - before - bytes_of(model, n if stage == 3 else 1) <= 64
        assert spmdx.explain().memory.host_bytes == STATES[kind] * bytes_of(model, n)


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("stage", [1, 2, 3])
@OF_THESE
def test_the_peak_is_predicted(program, stage, n, kind):
    spmdx._C.set_checks(memory=True)
    _, report = report_of(program, kind, n, stage)
    assert max(report.memory.measured) == pytest.approx(report.peak_bytes, rel=0.05)


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_peak_of_activations_is_lower_by_all_of_the_state(stage, n, kind):
    spmdx._C.set_checks(memory=True)
    _, near = report_of(PROGRAMS["MLP of 8 layers"], kind, n, stage, offload=False)
    model, far = report_of(PROGRAMS["MLP of 8 layers"], kind, n, stage)
    state = STATES[kind] * bytes_of(model, n)
    assert near.peak_bytes - far.peak_bytes == state
    assert max(near.memory.measured) - max(far.memory.measured) == state
    assert (near.memory.host_bytes, far.memory.host_bytes) == (0, state)
    assert near.wire_bytes == far.wire_bytes


def update(program, kind, n, offload=True):
    """The model, and the report of a step that is an update alone, of gradients that are cut."""
    model, optimizer, batch = made(program, kind, n, 3, offload)
    for _ in range(3):
        rows = spmdx.mark_sharding(batch().to("spmdx"), mesh_of(n), ("data", None))
        model(rows).backward()
        del rows
        spmdx.sync(wait=True)
        optimizer.step()
        spmdx.sync(wait=True)
        report = spmdx.explain()
        optimizer.zero_grad()
    return model, report


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("n", [4, 8])
def test_an_update_holds_the_state_of_one_parameter_at_a_time(n, kind):
    """Beside parameters and gradients: that, a number more that is computed, and small ones."""
    spmdx._C.set_checks(memory=True)
    for layers in 4, 8, 16:
        few = mlp(layers, rows=n)  # so that each gradient has memory of its own
        model, report = update(few, kind, n)
        largest = model[0].weight.numel() * 4 // n
        for peak in report.peak_bytes, max(report.memory.measured):
            room = peak - 2 * bytes_of(model, n)
            assert STATES[kind] * largest <= room <= (STATES[kind] + 1) * largest + 64 * layers


# ---- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_plan_alone_says_the_same(stage, kind):
    _, report = report_of(PROGRAMS["MLP of 8 layers"], kind, 4, stage)
    with spmdx.plan_only():
        _, planned = report_of(PROGRAMS["MLP of 8 layers"], kind, 4, stage)
    assert planned.memory.host_bytes == report.memory.host_bytes > 0
    assert (planned.peak_bytes, planned.step_ns) == (report.peak_bytes, report.step_ns)


def test_copies_take_their_time():
    """State goes both ways, at the rate of the profile, beside nothing else."""
    spmdx.set_hardware("h100-80", topology="nvlink")
    try:
        with spmdx.plan_only():
            wide = mlp(4, 1024, rows=64)
            times = [update(wide, "AdamW, all at once", 4, way)[1].step_ns for way in (False, True)]
            model = update(wide, "AdamW, all at once", 4)[0]
    finally:
        spmdx.set_hardware(None, topology="in-process")
    copies = 2 * 2 * 8  # there and back, of two numbers of each parameter
    moved = 2 * 2 * bytes_of(model, 4) / 64e9 * 1e9
    assert times[1] - times[0] == pytest.approx(moved + copies * 900, rel=1e-3)


@pytest.mark.parametrize("kind", ["AdamW, one by one", "AdamW, all at once"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_limit_under_which_only_state_on_hosts_fits(stage, kind):
    """Of layers of which the state is most of what is held. The first update makes it."""
    program = mlp(8, width=256, rows=16)
    peaks = [report_of(program, kind, 4, stage, way)[1].peak_bytes for way in (False, True)]
    limit = sum(peaks) // 2
    for offload in True, False:
        spmdx.set_memory_limit(None)
        model, optimizer, batch = made(program, kind, 4, stage, offload)
        if stage == 3:  # parameters are cut at the end of the first step
            spmdx.sync(wait=True)
        spmdx.set_memory_limit(limit)
        if offload:
            for _ in range(2):
                one_step(model, optimizer, batch, mesh_of(4))
                assert spmdx.explain().peak_bytes <= limit
        else:
            with pytest.raises(spmdx.ShardingError, match="memory limit"):
                for _ in range(2):
                    one_step(model, optimizer, batch, mesh_of(4))


def test_a_report_says_what_hosts_hold():
    model, report = report_of(mlp(8), "AdamW, all at once", 4, 1)
    state = 2 * bytes_of(model, 4)
    line = f"The host of a device holds {state:,} bytes of it at most"
    assert line in str(report.memory) and report.to_dict()["memory"]["host_bytes"] == state
    _, near = report_of(mlp(8), "AdamW, all at once", 4, 1, offload=False)
    assert "The host of a device" not in str(near.memory)
