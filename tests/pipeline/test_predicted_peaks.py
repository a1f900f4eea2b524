# SPDX-License-Identifier: Apache-2.0
"""Predicted memory is what a run holds: the most of it, and the largest three pieces."""

import pytest
import spmdx
import torch
from pipeline_models import CASES, make
from torch.utils.checkpoint import checkpoint

MODELS = ("gpt", "llama", "translator", "unet", "resnet", "experts")
ROWS = 24


def one(model):
    return None, None


def data_parallel(model):
    return spmdx.Mesh(range(4), (4,), ("data",)), "data"


def fully_sharded(model):
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    spmdx.fully_shard(model, mesh, axis="data")
    return mesh, "data"


def staged(model, cuts):
    mesh = spmdx.Mesh(range(2), (2,), ("pipe",))
    spmdx.nn.pipeline(model, mesh, cuts=cuts)
    return None, None


def staged_and_sharded(model, cuts):
    mesh = spmdx.Mesh(range(4), (2, 2), ("pipe", "data"))
    spmdx.nn.pipeline(model, mesh, cuts=cuts)
    spmdx.fully_shard(model, mesh, axis="data")
    return mesh, "data"


MODES = {
    "one": one,
    "data": data_parallel,
    "sharded": fully_sharded,
    "pipe": staged,
    "pipe and sharded": staged_and_sharded,
}


@pytest.fixture(autouse=True)
def measuring():
    spmdx._C.set_checks(memory=True)
    yield
    spmdx._C.set_checks()
    spmdx.set_memory_limit(None)


def trained(name, mode, call=lambda model, xs: model(*xs)):
    """The report of a step that repeats, and of each device the largest pieces it held."""
    case = CASES[name]
    model = make(name, torch.float32).to("spmdx")
    cuts = [case.cuts[2]] if "pipe" in mode else []
    mesh, axis = MODES[mode](model, *cuts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    microbatches = 4 if cuts else 1
    for _ in range(3):
        for _ in range(microbatches):
            xs, y = case.batch(ROWS // microbatches)
            tensors = [t.float() if t.is_floating_point() else t for t in (*xs, y)]
            placed = [t.to("spmdx") for t in tensors]
            for t in placed if mesh is not None else ():
                spmdx.mark_sharding(t, mesh, (axis, ...))
            case.loss(call(model, placed[:-1]), placed[-1]).backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.sync(wait=True)
    return spmdx.explain().memory, [largest for _, largest in spmdx._C.measured_peaks()]


def assert_as_measured(memory, largest):
    most = max(memory.measured)
    assert memory.peak_bytes == pytest.approx(most, rel=0.05)
    fullest = largest[memory.measured.index(most)]
    assert [held.bytes for held in memory.held[:3]] == fullest
    assert sum(memory.by_kind.values()) == memory.peak_bytes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_and_who_holds_most(name, mode):
    assert_as_measured(*trained(name, mode))


def checkpointed(model, xs):
    return checkpoint(model, *xs, use_reentrant=False)


@pytest.mark.parametrize("mode", ["one", "data", "sharded"])
def test_of_what_is_computed_again(mode):
    assert_as_measured(*trained("gpt", mode, checkpointed))


@pytest.mark.parametrize("mode", ["one", "data", "sharded", "pipe"])
@pytest.mark.parametrize("name", MODELS)
def test_of_what_plans_compute_again(name, mode):
    free, _ = trained(name, mode)
    kept = sum(free.by_kind[kind] for kind in ("parameters", "gradients", "optimizer state"))
    limit = kept + int(0.75 * (free.peak_bytes - kept))
    spmdx.set_memory_limit(limit)
    memory, largest = trained(name, mode)
    assert memory.peak_bytes <= limit and memory.recomputed
    assert_as_measured(memory, largest)


def squares(x, w):
    return (x @ w).square().mean()


def parts_in_rows(x, w):
    """A part of the columns of three dims becomes rows: a view, which keeps the whole."""
    whole = spmdx.mark_sharding(torch.sin(x.view(2, -1, 32)), x.sharding.mesh, (None, None, None))
    spmdx.mark_sharding(w, x.sharding.mesh, ("data", None))
    return torch.tanh(whole @ w).mean()


@pytest.mark.parametrize("function", [squares, parts_in_rows], ids=lambda f: f.__name__)
def test_of_what_writes_in_place_and_of_views(function):
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    torch.manual_seed(0)
    xs = [torch.randn(1024, 32).double().to("spmdx") for _ in range(6)]
    spmdx.mark_step()
    ws = [torch.nn.Parameter(torch.randn(32, 32).double().to("spmdx")) for _ in xs]
    spec = (None, None) if function is parts_in_rows else ("data", None)
    xs = [spmdx.mark_sharding(x, mesh, spec) for x in xs]
    sum(function(x, w) for x, w in zip(xs, ws, strict=True)).backward()
    spmdx.sync(wait=True)
    memory = spmdx.explain().memory
    assert memory.peak_bytes == pytest.approx(max(memory.measured), rel=0.01)
