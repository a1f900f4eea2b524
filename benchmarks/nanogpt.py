# SPDX-License-Identifier: Apache-2.0
"""nanoGPT's model in plain PyTorch, at the sizes of its own configurations for small machines."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    layers: int
    width: int
    heads: int
    context: int
    vocab: int = 65
    fused: bool = True  # q, k and v in one matrix, as nanoGPT has it


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.size = c.width // c.heads
        outputs = (3,) if c.fused else (1, 1, 1)
        self.qkv = nn.ModuleList(nn.Linear(c.width, n * c.width, bias=False) for n in outputs)
        self.out = nn.Linear(c.width, c.width, bias=False)

    def forward(self, x):
        parts = [linear(x) for linear in self.qkv]
        q, k, v = parts if len(parts) == 3 else parts[0].chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (-1, self.size)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1 = nn.LayerNorm(c.width, bias=False)
        self.attention = Attention(c)
        self.norm2 = nn.LayerNorm(c.width, bias=False)
        self.up = nn.Linear(c.width, 4 * c.width, bias=False)
        self.down = nn.Linear(4 * c.width, c.width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tokens = nn.Embedding(c.vocab, c.width)
        self.positions = nn.Embedding(c.context, c.width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width, bias=False)
        self.head = nn.Linear(c.width, c.vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.positions(place)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def token_mean(logits, y):
    """The mean over all tokens, of which every process has equally many."""
    return F.cross_entropy(logits, y, reduction="sum") / y.numel()


def valid_mean(logits, y):
    """The mean over the tokens that are not -1, however many of them a process has."""
    return F.cross_entropy(logits, y, ignore_index=-1)


def train_step(model, optimizer, x, y, loss_function):
    """One step; the loss is not kept, as every process of a peer has only its own."""
    loss = loss_function(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
