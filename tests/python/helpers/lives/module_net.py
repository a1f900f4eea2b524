# SPDX-License-Identifier: Apache-2.0
"""The module that lives: what it computes, its numbers, whether something is parametrized."""

import torch
from torch import nn
from torch.nn.utils import parametrize, prune


class Net(nn.Module):
    """Embedding, linears and a head of the embedding's shape; buffers, read and written."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 8)
        self.up = nn.Linear(8, 12)
        self.norm = nn.LayerNorm(12)
        self.down = nn.Linear(12, 8)
        self.head = nn.Linear(8, 6, bias=False)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def forward(self, index):
        x = self.embedding(index) * self.scale
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
            self.rows.add_(len(index))
        return self.head(self.down(self.norm(torch.sin(self.up(x)))))


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parametrized(module):
    return any(parametrize.is_parametrized(m) or prune.is_pruned(m) for m in module.modules())
