# SPDX-License-Identifier: Apache-2.0
"""Products that devices would repeat, as nobody cut them, are shared out where that saves time."""

import pytest
import spmdx
import torch
from composites import mesh_of
from spmdx.topology import Level
from torch import nn

ONE, TWO = ((8,), ("x",)), ((2, 4), ("data", "model"))
FAST = spmdx.Topology("fast", (Level(0, 5000, 50, 500),), 0.01, 1)


def layers(count, width):
    return nn.Sequential(
        *(layer for _ in range(count) for layer in (nn.Linear(width, width, bias=False), nn.GELU()))
    )


def planned(mesh, x_spec=None, weight_spec=None, rows=4096, width=1024):
    """The third step of four layers with AdamW, of which one tensor is marked."""
    with spmdx.plan_only():
        model = layers(4, width).to("spmdx")
        if weight_spec:
            spmdx.mark_sharding(model[0].weight, mesh, weight_spec)
        optimizer = torch.optim.AdamW(model.parameters())
        spmdx.mark_step()
        for _ in range(3):
            x = torch.empty(rows, width, device="spmdx")
            if x_spec:
                spmdx.mark_sharding(x, mesh, x_spec)
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.mark_step()
        return spmdx.explain()


def work(report, mesh):
    """What devices compute together, in multiples of what one would."""
    return report.flops * mesh.size() / report.whole_flops


@pytest.mark.parametrize(
    ("mesh", "x_spec", "weight_spec"),
    [
        (ONE, (None, "x"), None),
        (ONE, None, ("x", None)),
        (ONE, None, (None, "x")),
        (TWO, ("data", None), None),
        (TWO, None, ("model", None)),
    ],
    ids=["columns of x", "rows of a weight", "columns of a weight", "one of two axes", "the other"],
)
def test_one_annotation_is_enough_to_share_all_products_out(mesh, x_spec, weight_spec):
    mesh = spmdx.Mesh(range(8), *mesh)
    report = planned(mesh, x_spec, weight_spec)
    assert work(report, mesh) <= 1.05
    gradients = 2 * 4 * 1024 * 1024 * 4 * 7 / 8  # an all_reduce of each weight's
    assert report.wire_bytes <= 1.15 * gradients


def test_on_fast_devices_a_small_product_is_repeated():
    mesh = spmdx.Mesh(range(8), *ONE)
    before = spmdx.get_topology()
    spmdx.set_topology(FAST)
    try:
        report = planned(mesh, None, ("x", None), rows=64, width=64)
    finally:
        spmdx.set_topology(before)
    assert work(report, mesh) > 1.5


@pytest.mark.parametrize("devices", [2, 3, 4, 8, "4x2"])
@pytest.mark.parametrize("rows", [96, 101])
def test_results_and_gradients_are_those_of_one_device(devices, rows):
    torch.manual_seed(0)
    model, x = layers(3, 48).double(), torch.randn(rows, 48, dtype=torch.float64)
    model(x).square().mean().backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.to("spmdx")
    spmdx.mark_sharding(model[2].weight, mesh_of(devices), ("x", None))
    for _ in range(2):  # in the second step everything lies as the first one has left it
        model.zero_grad()
        model(x.to("spmdx")).square().mean().backward()
        spmdx.mark_step()
    for parameter, grad in zip(model.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), grad, rtol=1e-9, atol=1e-12)
