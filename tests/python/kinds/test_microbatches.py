# SPDX-License-Identifier: Apache-2.0
"""Loops over microbatches, on devices of several kinds: each adds its own gradients up."""

import functools

import pytest
import spmdx
import torch
from torch import nn
from torch.nn import functional

MICROBATCHES, STEPS = 13, 3
# Devices of a mesh, and their rates: a kind for each; the last mesh cuts rows by another axis, too.
# In the first test sends take no time beside the work, so that little of it is spread over many.
MESHES = {
    (2,): [3, 2],
    (3,): [1, 2, 1],
    (4,): [1, 1, 3, 2],
    (8,): [1, 2, 1, 1, 2, 1, 1, 3],
    (4, 2): [2, 1, 1, 2],
}


def placed_on(shape, unit):
    """A mesh of so many devices, which are kinds along its first axis, of so many units each."""
    each = shape[1] if len(shape) > 1 else 1
    names = [f"cpu@{i}" for i in range(shape[0]) for _ in range(each)]
    names += ["cpu@0"] * (8 - len(names))
    told = {
        f"cpu@{i}": spmdx.Hardware(f"cpu@{i}", {"f64": rate * unit}, rate * unit)
        for i, rate in enumerate(MESHES[shape])
    }
    spmdx.runtime.set_devices(names, hardware=told)
    mesh = spmdx.Mesh(range(each * shape[0]), shape, ("kind", "data")[: len(shape)])
    spmdx.auto.place(mesh, "kind")
    return mesh


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 6)).double()


def losses(model, x, targets, count=MICROBATCHES):
    parts = zip(x.chunk(count), targets.chunk(count), strict=True)
    return [functional.mse_loss(model(part), target) for part, target in parts]


def penalised(model, x, targets):
    """Gradients of gradients: terms of one sum are made of others."""
    found = losses(model, x, targets)
    grads = torch.autograd.grad(sum(found), [*model.parameters()], create_graph=True)
    return [*found, *(grad.square().sum() for grad in grads)]


def train(model, terms, x, targets, end, at_once=True):
    """Losses, and the gradients of the last step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    said = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        found = terms(model, x, targets)
        if at_once:
            sum(found).backward()
        else:
            for term in found:
                term.backward()
        optimizer.step()
        end()
        said.append(sum(found).detach())
    return [loss.item() for loss in said], [p.grad.cpu() for p in model.parameters()]


WAYS = {
    "one backward pass": (losses, True),
    "a backward pass each": (losses, False),
    "penalised": (penalised, True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_training_is_that_of_pytorch(shape, way):
    """52 rows are parts of 4; 50 are not all alike."""
    terms, at_once = WAYS[way]
    mesh = placed_on(shape, 1e6)
    used = set()

    def end():
        spmdx.mark_step()
        used.update(segment.coordinate for segment in spmdx.explain().placement.segments)

    for rows in (52, 50):
        x, targets = torch.randn(rows, 40).double(), torch.randn(rows, 6).double()
        plain, placed = net(), net().to("spmdx")
        expected = train(plain, terms, x, targets, lambda: None, at_once)
        spec = ("data", None) if len(shape) > 1 else (None, None)
        batch = [spmdx.mark_sharding(t.to("spmdx"), mesh, spec) for t in (x, targets)]
        found = train(placed, terms, *batch, end, at_once)
        assert found[0] == pytest.approx(expected[0], rel=1e-9)
        for mine, theirs in zip(found[1], expected[1], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
        for mine, theirs in zip(placed.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=1e-9, atol=1e-9)
    assert used == set(range(shape[0]))


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_each_device_sends_its_gradients_once(shape):
    """What a step sends does not grow with the number of microbatches, as long as none is split."""
    mesh = placed_on(shape, 1e10)
    count = 8 * shape[0]
    rows = 320 * count
    model = net().to("spmdx")
    spec = ("data", None) if len(shape) > 1 else (None, None)
    given = torch.randn(rows, 40).double(), torch.randn(rows, 6).double()
    batch = [spmdx.mark_sharding(t.to("spmdx"), mesh, spec) for t in given]
    sends, sizes = [], {p.numel() * 8 for p in model.parameters()}

    def end():
        spmdx.mark_step()
        placement = spmdx.explain().placement
        of_gradients = [s.bytes for s in placement.sends if s.op in GRADIENTS and s.bytes in sizes]
        sends.append(sum(of_gradients))
        busy = {segment.coordinate for segment in placement.segments}
        assert len(busy) > 1

    train(model, functools.partial(losses, count=count), *batch, end)
    held = sum(p.numel() * 8 for p in model.parameters())
    most = 2.5 if len(shape) == 1 else count / 4  # of as many as all microbatches
    assert 0 < sends[-1] <= most * held * (shape[0] - 1)


# That make a term of a gradient, or add terms up.
GRADIENTS = ("aten.mm", "aten.sum.dim_IntList", "aten.add.Tensor")
