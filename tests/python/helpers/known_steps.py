# SPDX-License-Identifier: Apache-2.0
"""Training steps of known models, and the bytes of the collectives that are enough for them."""

import spmdx
import torch
import torch.nn.functional as F
from torch import nn

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
torch.set_num_threads(1)

SIZES = [2, 4, 8]
COLUMN, COLUMN_BIAS, ROW = ("model", None), ("model",), (None, "model")


def line(size, axis):
    return spmdx.Mesh(range(size), (size,), (axis,))


def mark(module, mesh, spec, bias=None):
    spmdx.mark_sharding(module.weight, mesh, spec)
    if bias is not None:
        spmdx.mark_sharding(module.bias, mesh, bias)


def settled(*tensors):
    """Parameters and data lie as annotated: moving them there is no part of a step."""
    spmdx.mark_step()
    return tensors


def step(model, optimizer, loss_of):
    """One training step, traced and planned; the report of what it would do."""
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report = spmdx.explain(loss)
    spmdx.mark_step()
    return report


def kinds(report, least=0):
    """How many collectives of each kind move more than `least` bytes."""
    found = {}
    for c in report.collectives:
        if c.bytes > least:
            found[c.kind] = found.get(c.kind, 0) + c.count
    return found


def reduced(size, group, items=4):
    """Bytes of an all_reduce of `size` elements."""
    return 2 * size * items * (group - 1) // group


def scattered(size, group, items=4):
    """Bytes of a reduce_scatter or an all_gather of `size` elements."""
    return size * items * (group - 1) // group


def parameters(model):
    return sum(p.numel() for p in model.parameters())


class Perceptron(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def perceptron_step(model, mesh, spec, batch=512, width=64):
    x, y = torch.randn(batch, width).to("spmdx"), torch.randn(batch, width).to("spmdx")
    for t in (x, y):
        spmdx.mark_sharding(t, mesh, spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(model):
        return F.mse_loss(model(x), y)

    step(model, optimizer, loss_of)  # the optimizer's state exists from now on
    return step(model, optimizer, loss_of)
