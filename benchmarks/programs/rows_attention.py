# SPDX-License-Identifier: Apache-2.0
"""Attention over a cut sequence, caches of keys and values, and a few rows of a cut dim."""

import functools

import torch
import torch.nn.functional as F
from program_nets import Layer, layer_bytes, stack
from program_row import (
    F32,
    Row,
    adamw,
    exchanged,
    floats,
    gathered,
    integers,
    marked,
    reduced,
    repeated,
    scattered,
    trained,
)
from torch import nn

LINE, GRID = {"x": 8}, {"data": 2, "seq": 4}
D, HEADS, LENGTH = 256, 8, 8192
STREAM = LENGTH * D * F32


# --- training over a cut sequence -----------------------------------------------------------------


class Attention(nn.Module):
    """Attention alone, so that gradients of weights are small beside the stream."""

    def __init__(self, heads):
        super().__init__()
        self.layers = nn.ModuleList(Layer(D, heads, hidden=8) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer.attention(x)
        return x


def context(mesh, heads, axis="x", batch=None):
    model = Attention(heads).to("spmdx")
    rows = 1 if batch is None else mesh.mesh_shape[0]
    for layer in model.layers:
        for unused in (layer.norm1, layer.norm2, layer.up, layer.down):
            unused.requires_grad_(False)
    return trained(
        model, lambda m: m(marked(mesh, floats(rows, LENGTH, D), batch, axis)).square().mean()
    )


def contexts():
    weights = 2 * 4 * D * D * F32
    # Ulysses: q, k, v and the result are exchanged for heads, their gradients as well.
    least = 2 * 8 * exchanged(STREAM, 8) + reduced(weights, 8)
    run = functools.partial(context, heads=8)
    yield Row("context parallel, 8 heads on 8", LINE, run, least, "8L A2A + AR P")
    # Heads for half of the devices: two of them have the same heads, each half of the queries.
    # All eight tensors are exchanged over four devices; keys, values and their gradients also are
    # gathered or scattered over two.
    part = STREAM / 8
    least = 2 * (8 * part * 3 / 4 + 4 * part) + reduced(weights, 8)
    run = functools.partial(context, heads=4)
    yield Row("context parallel, 4 heads on 8", LINE, run, least, "8L A2A, 4L AG, RS + AR P")
    least = 2 * 8 * exchanged(STREAM, 4) + reduced(weights, 8)
    run = functools.partial(context, heads=8, axis="seq", batch="data")
    yield Row("DP x context parallel", GRID, run, least, "8L A2A + AR P")


def queries_cut(mesh):
    q, k, v = (floats(1, HEADS, n, 64) for n in (LENGTH, 2048, 2048))
    marked(mesh, q, None, None, "x")
    return repeated(lambda: F.scaled_dot_product_attention(q, k, v) + 1)


def keys_cut(mesh, queries):
    q, k, v = (floats(4, HEADS, n, 64) for n in (queries, LENGTH, LENGTH))
    for t in (k, v):
        marked(mesh, t, None, None, "x")
    return repeated(lambda: F.scaled_dot_product_attention(q, k, v) + 1)


def inference():
    yield Row("attention, queries cut", LINE, queries_cut, 0, "keys are whole")
    for n in (1, 64):
        rows = 4 * HEADS * n * F32
        # Every device has a softmax of its keys: maximum and sum of all, results scattered.
        least = 2 * reduced(rows, 8) + scattered(rows * 64, 8)
        run = functools.partial(keys_cut, queries=n)
        name = f"attention, keys cut, {n} queries"
        yield Row(name, LINE, run, least, "AR max, sum; RS result")


# --- caches ---------------------------------------------------------------------------------------

SLOTS, CACHED, SIZE = 16, 8192, 128  # sequences, positions, width of a head
CACHE = SLOTS * CACHED * 8 * SIZE * F32


def decoded(mesh, cut, read=CACHED, at=77, new=1):
    """Write `new` positions, attend to `read`. `cut`: the dim of the cache that is cut."""
    spec = [None, None, None, None]
    spec[cut] = "x"
    caches = [marked(mesh, floats(SLOTS, CACHED, 8, SIZE), *spec) for _ in "kv"]

    def step():
        q = floats(SLOTS, 1, 32, SIZE)
        for cache in caches:
            cache[:, at : at + new] = floats(SLOTS, new, 8, SIZE)
        k, v = (cache[:, :read].transpose(1, 2) for cache in caches)
        return F.scaled_dot_product_attention(q.transpose(1, 2), k, v, enable_gqa=True) + 1

    return repeated(step)


def decoding():
    result, stats = SLOTS * 32 * SIZE * F32, SLOTS * 32 * F32
    parts = {"batch": 0, "sequence": 1, "heads": 2}
    # What is written is whole. Softmaxes of parts: maximum and sum of all, results scattered.
    merged = scattered(result, 8) + 2 * reduced(stats, 8)
    for name, dim in parts.items():
        run = functools.partial(decoded, cut=dim)
        least = merged if name == "sequence" else 0
        why = "AR max, sum; RS result" if least else "nothing crosses"
        yield Row(f"decoding, cache cut by {name}", LINE, run, least, why, peak=2 * CACHE / 8)
    short = functools.partial(decoded, cut=1, read=78)
    # All that is read lies on one device; the others get their sequences' part of it.
    least = 2 * SLOTS * 78 * 8 * SIZE * F32 / 8
    yield Row("decoding, short read of a cut sequence", LINE, short, least, "n/g rows")
    chunk = functools.partial(decoded, cut=1, at=512, new=1024)
    # A chunk across two devices' parts.
    yield Row("prefill of a cut sequence", LINE, chunk, merged, "writes are free")


class Decoder(nn.Module):
    """A layer of one new position, with columns, rows and caches by heads."""

    def __init__(self, mesh, width=1024):
        super().__init__()
        self.layers = stack(2, width, 8)
        shape = (SLOTS, 8, 4096, width // 8)
        self.caches = [[marked(mesh, floats(*shape), None, "x") for _ in "kv"] for _ in self.layers]
        for layer in self.layers:
            for part in (layer.q, layer.k, layer.v, layer.up):
                marked(mesh, part.weight, "x")
            for part in (layer.o, layer.down):
                marked(mesh, part.weight, None, "x")

    def forward(self, x):
        for layer, (keys, values) in zip(self.layers, self.caches, strict=True):
            h = layer.norm1(x)
            q, k, v = (
                w(h).unflatten(-1, (8, -1)).transpose(1, 2) for w in (layer.q, layer.k, layer.v)
            )
            keys[:, :, 9:10], values[:, :, 9:10] = k, v
            y = F.scaled_dot_product_attention(q, keys, values)
            x = x + layer.o(y.transpose(1, 2).flatten(2))
            x = x + layer.down(F.gelu(layer.up(layer.norm2(x))))
        return x


def decoder(mesh):
    model = Decoder(mesh)
    with torch.no_grad():
        return repeated(lambda: model(floats(SLOTS, 1, 1024)))


def decoders():
    # As in training: two sums a layer, of a row for each sequence; the last may stay cut.
    row = SLOTS * 1024 * F32
    least = 3 * reduced(row, 8) + scattered(row, 8)
    caches, weights = 2 * 2 * SLOTS * 8 * 4096 * SIZE * F32, 2 * layer_bytes(1024)
    peak = (caches + weights) / 8
    yield Row("TP decoding of two layers", LINE, decoder, least, "2L - 1 AR + RS", peak=peak)


# --- a few rows of a cut dim ----------------------------------------------------------------------

BATCH, TOKENS, WIDTH = 8, 1024, 512


def few(mesh, taken):
    """A layer for all tokens, a head for a few of them."""
    model = nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 1000, bias=False)])

    def loss(m):
        x = marked(mesh, floats(BATCH, TOKENS, WIDTH), None, "x")
        logits = m[1](m[0](x).relu()[:, taken])
        return F.cross_entropy(logits.flatten(0, -2), integers(logits[..., 0].numel()))

    return trained(model.to("spmdx"), loss, adamw)


def takes():
    kinds = {"last token": (-1, 1), "class token": (0, 1), "first 100": (slice(100), 100)}
    weight, head = WIDTH * WIDTH * F32, 1000 * WIDTH * F32
    for name, (taken, count) in kinds.items():
        rows = BATCH * count * WIDTH * F32
        # Who holds the rows sends them to all: a head of eight rows may be repeated. Or each gets
        # a part, and sends its gradients back.
        shared = reduced(head, 8) + rows / 8 + gathered(rows, 8)
        least = reduced(weight, 8) + (rows if count == 1 else shared)
        run = functools.partial(few, taken=taken)
        yield Row(f"sequence cut, {name}", LINE, run, least, "AR P + the rows")


def rows():
    return [*contexts(), *inference(), *decoding(), *decoders(), *takes()]
