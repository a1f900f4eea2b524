# SPDX-License-Identifier: Apache-2.0
"""One axis along a whole dim: what devices would repeat is shared out, where that saves time."""

import pytest
import spmdx
import torch
from composites import mesh_of
from spmdx.topology import Level
from torch import nn

ONE, TWO = ((8,), ("x",)), ((2, 4), ("data", "model"))
FAST = spmdx.Topology("fast", (Level(0, 5000, 50, 500),), "gpu")


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


class Residual(nn.Module):
    """A tensor parallel block: what is around it, devices along the axis would repeat."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


def cut(model, mesh):
    for block in model:
        spmdx.mark_sharding(block.up.weight, mesh, ("model", None))
        spmdx.mark_sharding(block.down.weight, mesh, (None, "model"))


def stepped(model, batches, mark=None):
    """Losses, and parameters after as many steps of AdamW."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for x in batches:
        loss = model(mark(x) if mark else x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()], optimizer


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_rows_around_tensor_parallel_products_are_cut_for_as_many_bytes(devices):
    blocks, width, rows = 3, 256, 8192
    mesh = spmdx.Mesh(range(devices), (devices,), ("model",))
    with spmdx.plan_only():
        model = nn.Sequential(*(Residual(width) for _ in range(blocks))).to("spmdx")
        cut(model, mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        spmdx.mark_step()
        for _ in range(2):
            model(torch.empty(rows, width, device="spmdx")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.mark_step()
        report = spmdx.explain()
    norms = [v.sharding for v in report.values if v.op.startswith("aten.native_layer_norm")]
    assert any("@model" in sharding for sharding in norms), norms
    sums = (2 * blocks) * 2 * rows * width * 4 * (devices - 1) / devices
    assert report.wire_bytes <= 1.02 * sums


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("rows", [96, 101])
def test_training_with_cut_rows_gives_the_numbers_of_one_device(devices, rows):
    torch.manual_seed(0)
    model = nn.Sequential(*(Residual(24) for _ in range(2))).double()
    batches = [torch.randn(rows, 24, dtype=torch.float64) for _ in range(3)]
    ours = nn.Sequential(*(Residual(24) for _ in range(2))).double()
    ours.load_state_dict(model.state_dict())
    ours = ours.to("spmdx")
    cut(ours, spmdx.Mesh(range(devices), (devices,), ("model",)))
    spmdx.mark_step()
    found, parameters, _ = stepped(ours, [x.to("spmdx") for x in batches])
    wanted, others, _ = stepped(model, batches)
    assert found == pytest.approx(wanted, rel=1e-9)
    for one, other in zip(parameters, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("data", "model"), [(2, 2), (2, 4), (4, 2)])
def test_what_an_optimizer_keeps_lies_as_its_parameter(data, model):
    """Weights are cut on both dims, the stream by width: gradients would suggest other layouts."""
    mesh = spmdx.Mesh(range(data * model), (data, model), ("data", "model"))
    with spmdx.plan_only():
        net = nn.Sequential(Residual(1024), Residual(1024)).to("spmdx")
        weights = [w for block in net for w in (block.up.weight, block.down.weight)]
        for up, down in zip(weights[::2], weights[1::2], strict=True):
            spmdx.mark_sharding(up, mesh, ("model", "data"))
            spmdx.mark_sharding(down, mesh, ("data", "model"))
        spmdx.mark_step()
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            x = torch.empty(16, 128, 1024, device="spmdx")
            x = spmdx.mark_sharding(x, mesh, ("data", None, None))
            for block in net:
                x = spmdx.mark_sharding(block(x), mesh, ("data", None, "model"))
            x.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.mark_step()
        for weight in weights:
            for state in ("exp_avg", "exp_avg_sq"):
                kept = spmdx.get_sharding(optimizer.state[weight][state])
                assert kept.spec == spmdx.get_sharding(weight).spec, state
