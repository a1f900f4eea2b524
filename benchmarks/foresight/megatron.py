# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM's GPT as its papers time it, written for one device, and how they lay it out."""

import math
from dataclasses import dataclass

import spmdx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 51200
DROPOUT = 0.1


@dataclass(frozen=True)
class Shape:
    """Sizes of a GPT, and what is computed again in its backward pass.

    Attributes:
        recompute: ``"full"``: every layer; ``"selective"``: scores of attention; ``""``: nothing.
        sequence: whether what all devices of "model" would hold alike is cut along the sequence.
    """

    width: int
    layers: int
    heads: int
    context: int = 2048
    recompute: str = "full"
    sequence: bool = False


def between(x, weight, sequence):
    """``x``, which lies between layers whose weights "model" cuts, as Megatron-LM lays it."""
    known = spmdx.get_annotation(weight)
    if known is None:
        return x
    there = known.mesh.axis_names
    along = [name for name in ("context", "model" if sequence else "") if name in there]
    spec = "data" if "data" in there else None, tuple(along) or None, None
    return spmdx.mark_sharding_with_gradients(x, known.mesh, spec)


class Attention(nn.Module):
    """Heads with keys and values of their own, side by side in the rows of one matrix."""

    def __init__(self, shape):
        super().__init__()
        self.heads, self.shape = shape.heads, shape
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def core(self, q, k, v, mask):
        """Scores are masked where they are made, as fused kernels do it."""
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(q.shape[-1]))
        return F.dropout(scores.softmax(-1), DROPOUT) @ v

    def forward(self, x, mask):
        rows, length, width = x.shape
        qkv = self.qkv(x).view(rows, length, self.heads, -1).transpose(1, 2)
        q, k, v = (t.flatten(0, 1) for t in qkv.chunk(3, -1))
        if self.shape.recompute == "selective":
            mixed = checkpoint(self.core, q, k, v, mask, use_reentrant=False)
        else:
            mixed = self.core(q, k, v, mask)
        mixed = mixed.view(rows, self.heads, length, -1).transpose(1, 2)
        return self.out(mixed.reshape(rows, length, width))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.sequence = shape.sequence
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x, mask):
        x = x + F.dropout(self.between(self.attention(self.between(self.norm1(x)), mask)), DROPOUT)
        y = self.down(F.gelu(self.up(self.between(self.norm2(x)))))
        return x + F.dropout(self.between(y), DROPOUT)

    def between(self, x):
        return between(x, self.up.weight, self.sequence)


class GPT(nn.Module):
    """Its output matrix is that of the embedding."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.register_buffer("mask", torch.zeros(1, shape.context, shape.context))

    def forward(self, ids):
        x = self.embedding(ids) + self.positions.weight
        x = F.dropout(x, DROPOUT)
        for layer in self.layers:
            if self.shape.recompute == "full":
                x = checkpoint(layer, x, self.mask, use_reentrant=False)
            else:
                x = layer(x, self.mask)
        return F.linear(self.norm(x), self.embedding.weight)


# What Megatron-LM's tensor parallelism cuts: columns, then rows, and the vocabulary.
PLAN = {
    "embedding.weight": ("model", None),
    "*.qkv.weight": ("model", None),
    "*.qkv.bias": ("model",),
    "*.out.weight": (None, "model"),
    "*.up.weight": ("model", None),
    "*.up.bias": ("model",),
    "*.down.weight": (None, "model"),
}


def predicted(shape, strategy, samples, hardware, topology):
    """The candidate that a training step with Adam is, of a batch of ``samples`` sequences."""
    with spmdx.plan_only():
        with torch.device("spmdx"):
            model = GPT(shape).to(torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters())

        def step(batches):
            for ids in batches:
                logits = model(ids[:, :-1]).flatten(0, 1)
                (F.cross_entropy(logits, ids[:, 1:].flatten()) / len(batches)).backward()
            optimizer.step()

        batch = torch.empty(samples, shape.context + 1, dtype=torch.long, device="meta")
        return spmdx.auto.predict(
            strategy, step, model, optimizer, batch, hardware=hardware, topology=topology
        )
