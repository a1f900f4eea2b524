# SPDX-License-Identifier: Apache-2.0
"""Layers over a cut sequence, whose rows are merged behind a whole batch, equal one device."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
torch.set_num_threads(1)


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.LayerNorm(10), nn.Linear(10, 6)).double()


def train(device, mesh, batch, sequence):
    """The loss, the output and every gradient of one step on tokens whose sequence is cut."""
    torch.manual_seed(1)
    x, y = (torch.randn(batch, sequence, 6, dtype=torch.float64).to(device) for _ in range(2))
    labels = torch.randint(6, (batch, sequence)).to(device)
    model = make().to(device)
    if mesh is not None:
        for t in (x, y):
            spmdx.mark_sharding(t, mesh, (None, "x", None))
        spmdx.mark_sharding(labels, mesh, (None, "x"))
    x.requires_grad_()
    out = model(x)
    loss = F.mse_loss(out, y) + F.cross_entropy(out.flatten(0, 1), labels.flatten())
    loss.backward()
    gradients = [p.grad for p in model.parameters()]
    return [t.detach().cpu() for t in (loss, out, x.grad, *gradients)]


@pytest.mark.parametrize("sequence", [16, 7, 3])
@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize("group", [2, 3, 4, 8])
def test_a_cut_sequence_gives_the_numbers_of_one_device(group, batch, sequence):
    mesh = spmdx.Mesh(range(group), (group,), ("x",))
    want = train("cpu", None, batch, sequence)
    got = train("spmdx", mesh, batch, sequence)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
