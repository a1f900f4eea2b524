# SPDX-License-Identifier: Apache-2.0
"""The nets of several programs: a perceptron, a pre-norm transformer, a language model."""

import torch
import torch.nn.functional as F
from program_row import F32, marked
from torch import nn


class Perceptron(nn.Sequential):
    """Blocks of two linear layers, wide inside, without biases."""

    def __init__(self, blocks, width, hidden):
        layers = []
        for _ in range(blocks):
            up, down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)
            layers += [up, nn.GELU(), down]
        super().__init__(*layers)


def perceptron_bytes(blocks, width, hidden):
    return blocks * 2 * width * hidden * F32


class Layer(nn.Module):
    """Pre-norm attention and an MLP of four times the width; `pin` sees the residual stream."""

    def __init__(self, width, heads, kv_heads=None, pin=None, hidden=None):
        super().__init__()
        self.size, inner = width // heads, (kv_heads or heads) * (width // heads)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in "qo")
        self.k, self.v = (nn.Linear(width, inner, bias=False) for _ in "kv")
        self.up = nn.Linear(width, hidden or 4 * width, bias=False)
        self.down = nn.Linear(hidden or 4 * width, width, bias=False)
        self.pin = pin or (lambda x: x)

    def attention(self, x):
        q, k, v = (
            w(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = self.pin(x + self.attention(self.norm1(x)))
        return self.pin(x + self.down(F.gelu(self.up(self.norm2(x)))))


def layer_bytes(width):
    """Parameters of a layer without norms: four of attention, eight of the MLP."""
    return 12 * width * width * F32


class Language(nn.Module):
    """An embedding, layers, and a head that may share the embedding's table."""

    def __init__(self, vocabulary, layers, width, heads, pin=None, tied=False):
        super().__init__()
        self.pin = pin or (lambda x: x)
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, pin=pin) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.pin(self.tokens(ids))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def language_loss(model, ids):
    return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


# --- annotations ----------------------------------------------------------------------------------


def megatron(layer, mesh, axis, other=None):
    """Columns of q, k, v and up, rows of o and down; `other` cuts the other dim."""
    for column in (layer.q, layer.k, layer.v, layer.up):
        marked(mesh, column.weight, axis, other)
    for row in (layer.o, layer.down):
        marked(mesh, row.weight, other, axis)


def fully(model, mesh, axes, least=2):
    """Dim 0 of every parameter of at least so many dims."""
    for p in model.parameters():
        if p.dim() >= least:
            marked(mesh, p, axes)


def stack(layers, width, heads, **options):
    with torch.device("spmdx"):
        return nn.Sequential(*(Layer(width, heads, **options) for _ in range(layers)))
