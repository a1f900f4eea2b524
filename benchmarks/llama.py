# SPDX-License-Identifier: Apache-2.0
"""A Llama-shaped language model in plain PyTorch, and three ways to lay it out on a mesh."""

from dataclasses import dataclass

import spmdx
import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    layers: int = 32
    width: int = 4096
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 14336
    vocab: int = 128256
    context: int = 4096


class Attention(nn.Module):
    """Causal attention with rotary positions; several query heads share a key and value head."""

    def __init__(self, c):
        super().__init__()
        self.size = c.width // c.heads
        self.q = nn.Linear(c.width, c.heads * self.size, bias=False)
        self.k = nn.Linear(c.width, c.kv_heads * self.size, bias=False)
        self.v = nn.Linear(c.width, c.kv_heads * self.size, bias=False)
        self.out = nn.Linear(c.heads * self.size, c.width, bias=False)
        self.share = c.heads // c.kv_heads

    def forward(self, x, cos, sin):
        q, k, v = (
            linear(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(self.share, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(c.width), nn.RMSNorm(c.width)
        self.attention = Attention(c)
        self.gate = nn.Linear(c.width, c.hidden, bias=False)
        self.up = nn.Linear(c.width, c.hidden, bias=False)
        self.down = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x, cos, sin, residual):
        x = residual(x + self.attention(self.norm1(x), cos, sin))
        h = self.norm2(x)
        return residual(x + self.down(F.silu(self.gate(h)) * self.up(h)))


class Llama(nn.Module):
    """`residual` is called on the residual stream: there a layout can be asked for."""

    def __init__(self, c, residual=lambda x: x):
        super().__init__()
        self.residual = residual
        self.tokens = nn.Embedding(c.vocab, c.width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.width)
        self.head = nn.Linear(c.width, c.vocab, bias=False)
        half = c.width // c.heads // 2
        angles = torch.arange(c.context)[:, None] * 500000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin(), persistent=False)

    def forward(self, ids):
        x = self.residual(self.tokens(ids))
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.residual)
        return self.head(self.norm(x))


COLUMNS = ("attention.q", "attention.k", "attention.v", "gate", "up")
ROWS = ("attention.out", "down")


def mark_tensor_parallel(model, mesh, shard_state=False):
    """Heads and hidden units along "model"; with `shard_state` the other dim along "data"."""
    other = "data" if shard_state else None
    for block in model.blocks:
        for name in COLUMNS:
            spmdx.mark_sharding(block.get_submodule(name).weight, mesh, ("model", other))
        for name in ROWS:
            spmdx.mark_sharding(block.get_submodule(name).weight, mesh, (other, "model"))
    for matrix in (model.tokens.weight, model.head.weight):
        spmdx.mark_sharding(matrix, mesh, ("model", other))


def sequence_parallel(mesh):
    """The residual stream, forward and backward, cut along the sequence by "model"."""
    return lambda x: spmdx.mark_sharding_with_gradients(x, mesh, ("data", "model", None))
