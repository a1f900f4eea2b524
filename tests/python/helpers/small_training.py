# SPDX-License-Identifier: Apache-2.0
"""A small network with branches, and its training on one device or on a mesh."""

import pytest
import spmdx
import torch
from torch.nn import functional

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
}


class Net(torch.nn.Module):
    """Two branches, a norm and attention, which may run at once."""

    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(12, 24), torch.nn.Linear(12, 24)
        self.norm, self.head = torch.nn.LayerNorm(24), torch.nn.Linear(24, 12)

    def forward(self, x):
        a, b = functional.gelu(self.left(x)), self.right(x).tanh()
        mixed = functional.scaled_dot_product_attention(a, b, a + b)
        return self.head(self.norm(mixed))


def training(place, optimizer, rows=6, steps=4, dtype=torch.float64):
    torch.manual_seed(0)
    model, x = Net().to(dtype), torch.randn(rows, 5, 12).to(dtype)
    model, x, y = place(model, x, torch.randn(rows, 5, 12).to(dtype))
    chosen = optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        chosen.step()
        chosen.zero_grad()
        losses.append(loss.detach())
        if x.device.type == "spmdx":
            spmdx.mark_step()
    return [loss.item() for loss in losses], [p.detach().cpu() for p in model.parameters()]


def on(mesh, marks_parameters):
    def place(model, *batch):
        model = model.to("spmdx")
        if marks_parameters:
            for p in model.parameters():
                spmdx.mark_sharding(p, mesh, (None,) * p.dim())
        spec = ("data", None, None)
        return model, *(spmdx.mark_sharding(t.to("spmdx"), mesh, spec) for t in batch)

    return place


def require_equal(found, expected, of_losses=1e-12, of_parameters=1e-10):
    """Losses and parameters of two trainings, within these bounds."""
    assert found[0] == pytest.approx(expected[0], rel=of_losses)
    for mine, theirs in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=of_parameters, atol=of_parameters)
