# SPDX-License-Identifier: Apache-2.0
"""Data parallel programs for ZeRO: stacks of layers and small GPTs, and a step of training them."""

import functools

import spmdx
import torch
from torch import nn
from torch.nn import functional as F

WORDS, TOKENS = 128, 32

OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2),
    # The gradient of keys' biases is zero; with its own eps, Adafactor scales roundings of it up.
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2, eps=(1e-8, 1e-3)),
}


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        pieces = self.qkv(self.before(x)).split(x.shape[2], 2)
        q, k, v = (p.unflatten(2, (self.heads, -1)).transpose(1, 2) for p in pieces)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    """Maps words of shape [sequences, TOKENS] to the loss of their prediction."""

    def __init__(self, blocks, width=64):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(TOKENS, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, words):
        x = self.blocks(self.words(words) + self.places.weight)
        return F.cross_entropy(
            self.head(self.norm(x))[:, :-1].flatten(0, 1), words[:, 1:].flatten()
        )


class MLP(nn.Sequential):
    """The mean square of what its layers make of rows."""

    def __init__(self, layers, width):
        super().__init__(*(m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())))

    def forward(self, rows):
        return super().forward(rows).square().mean()


def _mlp(layers, width, rows, dtype=torch.float32):
    torch.manual_seed(0)
    return MLP(layers, width).to(dtype), lambda: torch.randn(rows, width, dtype=dtype)


def _gpt(blocks, width, sequences, dtype=torch.float32):
    torch.manual_seed(0)
    model = GPT(blocks, width).to(dtype)
    return model, lambda: torch.randint(WORDS, (sequences, TOKENS))


def mlp(layers, width=64, rows=4096, dtype=torch.float32):
    """A function that makes the model, and one that makes a batch."""
    return functools.partial(_mlp, layers, width, rows, dtype)


def gpt(blocks, width=64, sequences=256, dtype=torch.float32):
    return functools.partial(_gpt, blocks, width, sequences, dtype)


def mesh_of(n):
    return spmdx.Mesh(range(n), (n,), ("data",))


def one_step(model, optimizer, batch, mesh=None, m=1, clip=False):
    """Of m batches; on the CPU without a mesh. The norm of the gradients where they are clipped."""
    norm = None
    for _ in range(m):
        rows = batch()
        if mesh is not None:
            rows = spmdx.mark_sharding(rows.to("spmdx"), mesh, ("data", None))
        (model(rows) / m).backward()
    if clip:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    optimizer.zero_grad()
    if mesh is not None:
        spmdx.mark_step()
    return norm
