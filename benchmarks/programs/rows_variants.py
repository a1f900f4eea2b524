# SPDX-License-Identifier: Apache-2.0
"""Tensor parallel layers of other kinds: fused matrices, rotated, biased and cross attention."""

import functools

import torch
import torch.nn.functional as F
from program_nets import Layer, layer_bytes
from program_row import F32, Row, floats, marked, reduced, trained
from torch import nn

D, HEADS, LAYERS, BATCH, LENGTH = 1024, 16, 2, 16, 128
STREAM, SQUARE = BATCH * LENGTH * D * F32, D * D * F32


def heads(x):
    return x.unflatten(-1, (-1, D // HEADS)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


class Parallel(Layer):
    """Attention and MLP beside each other, on the same norm."""

    def forward(self, x):
        h = self.norm1(x)
        return x + self.attention(h) + self.down(F.gelu(self.up(h)))


class Fused(Layer):
    """One matrix for q, k and v."""

    def __init__(self):
        super().__init__(D, HEADS)
        del self.q, self.k, self.v
        self.qkv = nn.Linear(D, 3 * D, bias=False)

    def attention(self, x):
        q, k, v = (heads(part) for part in self.qkv(x).chunk(3, -1))
        return self.o(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class Gated(Layer):
    """One matrix for a gate and what it lets through."""

    def __init__(self):
        super().__init__(D, HEADS)
        self.up = nn.Linear(D, 8 * D, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Rotated(Layer):
    """Halves of each head are rotated by position."""

    def attention(self, x):
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        angles = torch.arange(LENGTH, device=x.device)[:, None] * torch.ones(32, device=x.device)
        q, k = (self.rotate(t, angles.cos(), angles.sin()) for t in (q, k))
        return self.o(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))

    @staticmethod
    def rotate(t, cos, sin):
        a, b = t.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Biased(Layer):
    """A trained bias for each head and pair of positions, and attention in its parts."""

    def __init__(self):
        super().__init__(D, HEADS)
        self.bias = nn.Parameter(torch.empty(HEADS, LENGTH, LENGTH))

    def attention(self, x):
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        scores = q @ k.transpose(2, 3) / 8 + self.bias
        return self.o(joined(scores.softmax(-1) @ v))


class InParts(Layer):
    """Attention as products and a softmax, by matmul or by einsum."""

    def __init__(self, einsum):
        super().__init__(D, HEADS)
        self.einsum = einsum

    def attention(self, x):
        if self.einsum:
            q, k, v = (w(x).unflatten(-1, (HEADS, -1)) for w in (self.q, self.k, self.v))
            scores = torch.einsum("bqhd,bkhd->bhqk", q, k).div(8).softmax(-1)
            return self.o(torch.einsum("bhqk,bkhd->bqhd", scores, v).flatten(2))
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        return self.o(joined((q @ k.transpose(2, 3) / 8).softmax(-1) @ v))


class Crossed(Layer):
    """Attention to itself and to a memory that is given."""

    def __init__(self):
        super().__init__(D, HEADS)
        self.cross = Layer(D, HEADS, hidden=1)
        for unused in (self.cross.norm2, self.cross.up, self.cross.down):
            unused.requires_grad_(False)

    def forward(self, x):
        x, memory = x
        x = x + self.attention(self.norm1(x))
        c = self.cross
        q, k, v = heads(c.q(c.norm1(x))), heads(c.k(memory)), heads(c.v(memory))
        x = x + c.o(joined(F.scaled_dot_product_attention(q, k, v)))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), memory


COLUMNS, ROWS_OF = ("q", "k", "v", "up", "qkv"), ("o", "down")


def annotate(mesh, layer):
    for name, part in layer.named_modules():
        name = name.rpartition(".")[2]
        if name in COLUMNS:
            marked(mesh, part.weight, "model")
        if name in ROWS_OF:
            marked(mesh, part.weight, None, "model")
    if hasattr(layer, "bias"):
        marked(mesh, layer.bias, "model")


def run(mesh, make):
    model = nn.Sequential(*(make() for _ in range(LAYERS))).to("spmdx")
    for layer in model:
        annotate(mesh, layer)

    def loss(m):
        x, memory = (marked(mesh, floats(BATCH, LENGTH, D), "data") for _ in "xm")
        y = m((x, memory))[0] if make is Crossed else m(x)
        return y.square().mean()

    return trained(model, loss)


def plain(kind, **options):
    return functools.partial(kind, D, HEADS, **options)


# Name: (layer, sums forward of a layer, weights beside those of a plain layer, of fused matrices
# how many squares are laid out anew).
KINDS = {
    "parallel attention and MLP": (plain(Parallel), 1, 0, 0),
    "fused q, k, v": (Fused, 2, 0, 3),
    "fused gate": (Gated, 2, 4 * SQUARE, 8),
    "rotated heads": (plain(Rotated), 2, 0, 0),
    "attention by matmul": (functools.partial(InParts, einsum=False), 2, 0, 0),
    "attention by einsum": (functools.partial(InParts, einsum=True), 2, 0, 0),
    "bias of heads": (Biased, 2, HEADS * LENGTH * LENGTH * F32, 0),
    "cross attention": (Crossed, 3, 4 * SQUARE, 0),
    "one head of keys": (plain(Layer, kv_heads=1), 2, -2 * SQUARE * 15 / 16, 0),
}


def rows():
    """Sums forward and as many backward, but for the first layer, whose input needs no gradient;
    weights' gradients are summed over data. Parts of a fused matrix are no parts of all it joins:
    a device gets at most its whole part from others, and its gradient goes back."""
    made = []
    for name, (make, count, more, fused) in KINDS.items():
        for d, m in ((1, 8), (2, 4)):
            sums = (2 * count * LAYERS - 1) * reduced(STREAM / d, m)
            weights = LAYERS * (layer_bytes(D) + more)
            least = sums + reduced(weights / m, d) + LAYERS * 2 * fused * SQUARE / m
            why = f"{2 * count}L - 1 AR + AR P/m" + (" + relaid" if fused else "")
            layer = functools.partial(run, make=make)
            made.append(Row(f"TP, {name}, {d} x {m}", {"data": d, "model": m}, layer, least, why))
    return made
