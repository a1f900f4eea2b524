# SPDX-License-Identifier: Apache-2.0
"""A step that `.item()` cuts into several graphs keeps its shardings and about its bytes."""

import pytest
import spmdx
import torch
from torch import nn

spmdx.runtime.set_device_count(8)
MESH = spmdx.Mesh(range(8), (8,), ("data",))
CUTS = [("forward",), ("backward",), ("forward", "backward")]


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).double()
    return model, torch.randn(512, 64, dtype=torch.float64)


def train(device, sharded, cuts, steps=4):
    """Losses, parameters, and the wire bytes of the last step."""
    model, x = make()
    model, x = model.to(device), x.to(device)
    if sharded:
        for p in model.parameters():
            spmdx.mark_sharding(p, MESH, ("data", *[None] * (p.dim() - 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-6)
    losses, moved = [], 0
    for _ in range(steps):
        before = spmdx.debug.counters()["wire_bytes"]
        batch = x.clone()
        if device == "spmdx":
            spmdx.mark_sharding(batch, MESH, ("data", None))
        loss = model(batch).square().mean()
        if "forward" in cuts:
            assert loss.item() > 0
        loss.backward()
        if "backward" in cuts:
            assert model[0].weight.grad.abs().sum().item() > 0
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if device == "spmdx":
            spmdx.sync(wait=True)
        moved = spmdx.debug.counters()["wire_bytes"] - before
    return [loss.item() for loss in losses], [p.detach().cpu() for p in model.parameters()], moved


@pytest.mark.parametrize("sharded", [False, True], ids=["data parallel", "fully sharded"])
@pytest.mark.parametrize(
    "cuts", [("forward",), ("backward",), ("forward", "backward")], ids="+".join
)
def test_a_cut_step_equals_the_whole_one_and_moves_about_its_bytes(sharded, cuts):
    want_losses, want, _ = train("cpu", False, ())
    _, _, whole = train("spmdx", sharded, ())
    losses, got, moved = train("spmdx", sharded, cuts)
    torch.testing.assert_close(losses, want_losses, rtol=1e-9, atol=0)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    again = 256 * 64 * 8 * 7 // 8 if sharded else 0  # the last weight is gathered on both sides
    assert moved <= 1.1 * whole + again + 64, f"{moved} bytes a step, {whole} uncut"


def test_values_that_cross_the_cut_stay_sharded_and_know_why():
    model, x = make()
    model, x = model.to("spmdx"), x.to("spmdx")
    spmdx.mark_sharding(x, MESH, ("data", None))
    hidden = model[0](x)
    loss = hidden.square().mean()
    loss.item()
    assert spmdx.get_sharding(hidden).spec == ("data", None)
    again = model[2](model[1](hidden))
    assert spmdx.get_sharding(again).spec == ("data", None)
    report = spmdx.explain(again)
    assert not report.collectives
    assert any("layout" in value.provenance for value in report.values)
