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
