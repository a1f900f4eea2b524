# SPDX-License-Identifier: Apache-2.0
"""The models that PyTorch's FSDP2 and spmdx train alike."""

import torch
from torch import nn


class Tied(nn.Module):
    """One weight in two places, and an output of two tensors and a number."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8, bias=False)
        self.down = nn.Linear(8, 8, bias=False)
        self.down.weight = self.up.weight

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


MODELS = {
    "layers": lambda: nn.Sequential(
        nn.Linear(8, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 8)
    ),
    "tied": lambda: nn.Sequential(Tied(), nn.Linear(8, 4)),
}


def trained(model, rows, steps=3):
    """The losses of some steps of SGD."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
    for _ in range(steps):
        output = model(rows)
        loss = output.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
    return losses
