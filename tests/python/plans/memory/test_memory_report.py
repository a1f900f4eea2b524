# SPDX-License-Identifier: Apache-2.0
"""Who holds the memory of a step at its worst moment, and what happens where it is too much."""

import json
import math
import os
import re
import subprocess
import sys

import pytest
import spmdx
import torch
from messages import eight_devices
from torch import nn

ROWS, WIDTH = 64, 32
KINDS = {
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "gathered parameters",
    "buffers of collectives",
    "the update",
    "inputs",
}


def mesh_of(*shape, axes=("data",)):
    return spmdx.Mesh(range(math.prod(shape)), shape, axes)


def net(width=WIDTH, layers=3):
    torch.manual_seed(0)
    return nn.Sequential(
        *(m for _ in range(layers) for m in (nn.Linear(width, width, bias=False), nn.Tanh()))
    ).to("spmdx")


def train(model, mesh, spec=("data", None), steps=3, rows=ROWS, optimizer=torch.optim.AdamW):
    chosen = optimizer(model.parameters(), lr=0.01)
    width = next(model.parameters()).shape[1]
    for _ in range(steps):
        x = torch.randn(rows, width).to("spmdx")
        if mesh is not None:
            spmdx.mark_sharding(x, mesh, spec)
        model(x).square().mean().backward()
        chosen.step()
        chosen.zero_grad()
        spmdx.sync(wait=True)
    return spmdx.explain().memory


@pytest.fixture
def measuring():
    spmdx._C.set_checks(memory=True)
    yield
    spmdx._C.set_checks()


@pytest.fixture(autouse=True)
def no_limit_is_left():
    eight_devices()
    yield
    spmdx.set_memory_limit(None)


@pytest.mark.parametrize("ways", [1, 2, 4, 8])
def test_all_bytes_of_the_peak_are_put_down_to_somebody(ways, measuring):
    memory = train(net(), mesh_of(ways))
    assert set(memory.by_kind) == KINDS
    assert sum(memory.by_kind.values()) == memory.peak_bytes == spmdx.explain().peak_bytes
    assert sum(held.bytes for held in memory.held) == memory.peak_bytes
    assert [h.bytes for h in memory.held] == sorted((h.bytes for h in memory.held), reverse=True)
    assert len(memory.measured) == ways
    assert max(memory.measured) == pytest.approx(memory.peak_bytes, rel=0.01)


def test_kinds_of_a_training_step_are_those_of_arithmetic():
    """Three weights, two moments of each and a count; at the worst moment."""
    memory = train(net(), None)
    weights = 3 * WIDTH * WIDTH * 4
    assert memory.by_kind["parameters"] == weights
    assert memory.by_kind["optimizer state"] == pytest.approx(2 * weights, abs=3 * 8)
    assert memory.by_kind["gathered parameters"] == 0
    assert memory.by_kind["inputs"] >= ROWS * WIDTH * 4
    # What tanh's backward needs of each layer, at least, and the gradient on its way.
    assert memory.by_kind["activations"] >= 3 * ROWS * WIDTH * 4


@pytest.mark.parametrize("ways", [2, 4])
def test_gathered_parameters_are_told_from_those_that_are_kept(ways):
    mesh, model = mesh_of(ways), net()
    spmdx.fully_shard(model, mesh, axis="data")
    memory = train(model, mesh, rows=512)
    weights = 3 * WIDTH * WIDTH * 4
    assert memory.by_kind["parameters"] == weights // ways
    assert memory.by_kind["optimizer state"] == pytest.approx(2 * weights // ways, abs=3 * 8)
    # At the worst moment, in the backward pass, at least one weight is there as a whole.
    assert memory.by_kind["gathered parameters"] >= weights // 3


def test_gradients_that_are_accumulated_count_as_gradients():
    model = net()
    for weight in model.parameters():
        spmdx.mark_sharding(weight, mesh_of(2), (None, None))
    for _ in range(2):
        model(torch.randn(2, WIDTH).to("spmdx")).sum().backward()
    spmdx.mark_step()
    model(torch.randn(2, WIDTH).to("spmdx")).sum().backward()
    spmdx.mark_step()
    memory = spmdx.explain().memory
    assert memory.by_kind["gradients"] >= 3 * WIDTH * WIDTH * 4
    assert memory.by_kind["parameters"] == 3 * WIDTH * WIDTH * 4
    assert memory.by_kind["optimizer state"] == 0


def test_running_statistics_are_kept_with_the_parameters():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH)).to("spmdx")
    memory = train(model, None, optimizer=torch.optim.SGD)
    kept = (WIDTH * WIDTH + 4 * WIDTH) * 4 + 8
    assert memory.by_kind["parameters"] == pytest.approx(kept, abs=2 * WIDTH * 4)


def test_the_three_largest_holders_are_what_was_made_large():
    """One input, one weight and one activation that are larger than all else by far."""
    big = nn.Linear(256, 4096, bias=False).to("spmdx")
    small = nn.Linear(4096, 1, bias=False).to("spmdx")
    x = torch.randn(64, 256).to("spmdx")
    small(torch.tanh(big(x))).sum().backward()
    spmdx.mark_step()
    four = [(h.kind, h.type, h.bytes) for h in spmdx.explain().memory.held[:4]]
    weight, rows = ("f32[4096, 256]", 4096 * 256 * 4), ("f32[64, 4096]", 64 * 4096 * 4)
    assert four == [
        ("parameters", *weight),
        ("gradients", *weight),
        ("activations", *rows),
        ("inputs", "f32[64, 256]", 64 * 256 * 4),
    ]


def test_stages_hold_what_is_theirs(measuring):
    mesh = mesh_of(2, axes=("pipe",))
    model = net(layers=4)
    spmdx.nn.pipeline(model, mesh, cuts=["4"])
    memory = train(model, None)
    assert max(memory.measured) == pytest.approx(memory.peak_bytes, rel=0.05)
    assert memory.by_kind["parameters"] == 2 * WIDTH * WIDTH * 4


def test_it_prints_who_holds_most():
    train(net(), mesh_of(2))
    memory = spmdx.explain().memory
    text = str(memory)
    assert f"A device holds {memory.peak_bytes:,} bytes at most, at " in text
    for said in ("Memory by kind", "parameters", "The 10 that hold most of", "f32[32, 32]"):
        assert said in text
    assert "Measured" not in text
    assert "Memory by kind" in str(spmdx.explain()) and "<pre" in memory._repr_html_()
    json.dumps(spmdx.explain().to_dict())


def test_the_curve_ends_with_what_is_kept():
    memory = train(net(), mesh_of(2))
    curve = [span.held_bytes for span in spmdx.explain().spans]
    assert max(curve) == memory.peak_bytes
    assert min(curve) >= memory.by_kind["parameters"] + memory.by_kind["optimizer state"]


def test_the_environment_asks_for_measuring():
    code = (
        "import spmdx, torch; x = torch.ones(1024).to('spmdx') + 1; spmdx.sync(wait=True); "
        "print(spmdx.explain().memory.measured)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SPMDX_CHECK": "memory"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"[{2 * 4096 + 8}]\n"  # and the number


# ---- the limit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ways", [1, 2, 4])
def test_a_step_that_needs_more_is_refused_and_runs_once_it_may(ways):
    mesh, model = mesh_of(ways), net()
    peak = train(model, mesh).peak_bytes
    before = [p.detach().cpu() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    spmdx.set_memory_limit(peak // 2)
    x = spmdx.mark_sharding(torch.ones(ROWS, WIDTH).to("spmdx"), mesh, ("data", None))
    model(x).sum().backward()
    optimizer.step()
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.mark_step()
    text = str(caught.value)
    assert re.match(r"test_memory_report\.py:\d+: the step that ends here needs [\d,]+ bytes", text)
    assert f"and the memory limit is {peak // 2:,}. Most of it is held so: " in text
    assert text.count(" by f32[") == 3
    assert text.endswith("or raise the limit by spmdx.set_memory_limit.")
    spmdx.set_memory_limit(None)
    spmdx.mark_step()
    with torch.no_grad():
        plain = [p.clone().requires_grad_() for p in before]
        optimizer = torch.optim.SGD(plain, lr=0.1)
    y = torch.ones(ROWS, WIDTH)
    for weight in plain:
        y = torch.tanh(y @ weight.T)
    y.sum().backward()
    optimizer.step()
    for got, wanted in zip(model.parameters(), plain, strict=True):
        torch.testing.assert_close(got.detach().cpu(), wanted.detach(), rtol=1e-4, atol=1e-4)


def test_the_limit_is_what_the_peak_may_be():
    model = net()
    peak = train(model, None).peak_bytes
    spmdx.set_memory_limit(peak)
    train(model, None, steps=1)
    spmdx.set_memory_limit(peak - 1, recompute=False)
    with pytest.raises(spmdx.ShardingError, match="the memory limit is"):
        train(model, None, steps=2)


def test_the_error_names_the_stage():
    model = net(layers=4)
    spmdx.nn.pipeline(model, mesh_of(2, axes=("pipe",)), cuts=["2"])
    train(model, None)
    spmdx.set_memory_limit(1000)
    with pytest.raises(spmdx.ShardingError, match="bytes on a device of stage 1, in"):
        train(model, None, steps=1)


def test_moving_data_to_where_it_is_cut_is_not_refused():
    model = net()
    spmdx.sync(wait=True)
    spmdx.set_memory_limit(3 * WIDTH * WIDTH * 4 // 2)
    spmdx.fully_shard(model, mesh_of(4), axis="data")
    spmdx.mark_step()
    assert spmdx.get_sharding(model[0].weight).spec == ("data", None)


def test_explaining_is_never_refused():
    spmdx.set_memory_limit(100)
    total = torch.ones(1000).to("spmdx").sum()
    assert spmdx.explain(total).peak_bytes > 100
    with pytest.raises(spmdx.ShardingError):
        total.item()
