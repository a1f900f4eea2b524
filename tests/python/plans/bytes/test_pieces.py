# SPDX-License-Identifier: Apache-2.0
"""Rows that are pieces of one weight, as gates are: each device gets its part of every piece."""

import pytest
import spmdx
import torch
from composites import mesh_of, topology
from torch import nn

LAYERS = {"GRU": nn.GRU, "LSTM": nn.LSTM}


def trained(layer, x, mesh=None):
    """Results and new weights of two steps, and what was planned for the last."""
    if mesh:
        layer = layer.to("spmdx")
        for p in layer.parameters():
            spmdx.mark_sharding(p, mesh, ("x", *[None] * (p.dim() - 1)))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    seen = []
    for _ in range(2):
        y = layer(x.to("spmdx") if mesh else x)[0]
        y.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(y.detach())
        if mesh:
            spmdx.mark_step()
    report = spmdx.explain() if mesh else None
    return [t.detach().cpu() for t in (*seen, *layer.parameters())], report


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("width", [24, 17])
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_results_and_new_weights_are_those_of_one_device(kind, width, devices):
    torch.manual_seed(0)
    layer = LAYERS[kind](width, width, 2).double()
    x = torch.randn(3, 40, width, dtype=torch.float64)
    state = {k: v.clone() for k, v in layer.state_dict().items()}
    want, _ = trained(layer, x)
    again = LAYERS[kind](width, width, 2).double()
    again.load_state_dict(state)
    with topology(1000, 1):
        got, report = trained(again, x, mesh_of(devices))
    gates = {"GRU": 3, "LSTM": 4}[kind]
    exchanged = any("take_rows" in c.cause for c in report.collectives)
    assert exchanged == (gates % devices != 0 and devices % gates != 0)  # else a view lays them out
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
