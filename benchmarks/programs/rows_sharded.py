# SPDX-License-Identifier: Apache-2.0
"""Fully sharded programs: parameters are gathered forward and backward, gradients scattered."""

import functools

import spmdx
import torch
from program_nets import Language, Perceptron, fully, language_loss, layer_bytes, perceptron_bytes
from program_row import (
    F32,
    I64,
    Row,
    adamw,
    floats,
    gathered,
    integers,
    marked,
    reduced,
    scattered,
    trained,
)
from rows_data import LINE, ROWS, D, H, classify, convolutions
from torch import nn
from torch.utils.checkpoint import checkpoint

BLOCKS = 8  # so many that weights do not stay gathered from forward to backward
MLP = perceptron_bytes(BLOCKS, D, H)
FIRST = D * H * F32  # the first weight is not needed backward: the batch has no gradient
GRID = {"data": 2, "model": 4}
HYBRID = {"replica": 2, "shard": 4}


class Recomputed(nn.Module):
    """Blocks whose hidden values are computed again in backward."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Perceptron(1, D, H) for _ in range(BLOCKS))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return x


class Halved(nn.Sequential):
    """Parameters in float32, products in bfloat16."""

    def forward(self, x):
        for layer in self:
            weight = getattr(layer, "weight", None)
            x = layer(x) if weight is None else x @ weight.to(torch.bfloat16).t()
        return x


def perceptron(mesh, weights, batch, make=lambda: Perceptron(BLOCKS, D, H), budget=0, dtype=None):
    """`weights` and `batch` are specs of parameters and of the batch."""
    spmdx.set_gather_budget(budget)
    try:
        model = make().to("spmdx")
        for p in model.parameters():
            marked(mesh, p, *weights)

        def loss(m):
            return m(marked(mesh, floats(ROWS, D, dtype=dtype), batch)).float().square().mean()

        return trained(model, loss)
    finally:
        spmdx.set_gather_budget(0)


def sharded(n, g, first=0):
    """Gathered for forward and for backward, scattered once."""
    return gathered(2 * n - first, g) + scattered(n, g)


def peak(shards):
    """Parameter and AdamW's state in shards, saved values, what backward begins with; beside it
    the gathered weight, its gradient before it is scattered, and the shard of that."""
    saved = ROWS / 8 * (D + BLOCKS * (2 * H + D) + D + 2 * H) * F32
    return 3 * MLP / shards + saved + 2 * FIRST


def perceptrons():
    run = functools.partial(perceptron, weights=("x",), batch="x")
    zero3 = sharded(MLP, 8, FIRST)
    yield Row("FSDP MLP", LINE, run, zero3, "2 AG + RS", peak=peak(8))
    once = gathered(MLP, 8) + scattered(MLP, 8)
    kept = functools.partial(run, budget=None)
    yield Row("FSDP MLP, gathered once", LINE, kept, once, "AG + RS")
    again = functools.partial(run, make=Recomputed)
    # Recomputation reads what backward gathers anyway; the first weight is read again, too.
    yield Row("FSDP MLP, recomputed", LINE, again, sharded(MLP, 8), "2 AG + RS")

    def halved():
        return Halved(*Perceptron(BLOCKS, D, H))

    half = functools.partial(run, make=halved, dtype=torch.bfloat16)
    # Weights are cast in shards, before they are gathered; gradients are summed in bfloat16.
    yield Row("FSDP MLP, bfloat16 products", LINE, half, zero3 / 2, "2 AG + RS, halves")
    both = ("data", "model")
    run = functools.partial(perceptron, weights=(both,), batch=both)
    yield Row("FSDP MLP, two axes on one dim", GRID, run, zero3, "2 AG + RS", peak=peak(8))
    run = functools.partial(perceptron, weights=both, batch=both)
    yield Row("FSDP MLP, an axis on each dim", GRID, run, zero3, "2 AG + RS", peak=peak(8))


def replicated():
    run = functools.partial(perceptron, weights=("shard",), batch=("replica", "shard"))
    # Fully sharded within a replica; the shards of gradients are then summed over replicas.
    least = sharded(MLP, 4, FIRST) + reduced(MLP / 4, 2)
    yield Row("HSDP MLP", HYBRID, run, least, "2 AG + RS in, AR out", peak=peak(4))


# --- cut state, whole parameters ------------------------------------------------------------------


def cut_state(mesh, gradients=False):
    model = Perceptron(BLOCKS, D, H).to("spmdx")
    for p in model.parameters():
        marked(mesh, p)
    optimizer = adamw(model.parameters())
    for _ in range(3):
        model(marked(mesh, floats(ROWS, D), "x")).square().mean().backward()
        if gradients:
            for p in model.parameters():
                marked(mesh, p.grad, "x")
        optimizer.step()
        for p in model.parameters():
            for name in ("exp_avg", "exp_avg_sq"):
                marked(mesh, optimizer.state[p][name], "x")
        optimizer.zero_grad()
        spmdx.mark_step()
    return spmdx.explain()


def zero():
    least = scattered(MLP, 8) + gathered(MLP, 8)
    yield Row("ZeRO-1 MLP, state cut", LINE, cut_state, least, "RS + AG")
    run = functools.partial(cut_state, gradients=True)
    yield Row("ZeRO-2 MLP, state and gradients cut", LINE, run, least, "RS + AG")


# --- other nets -----------------------------------------------------------------------------------


def language(mesh, vocabulary, batch, swapped=False, ids="x"):
    """`swapped` cuts the second dims of matrices."""
    model = Language(vocabulary, 2, D, 8).to("spmdx")
    if swapped:
        for p in model.parameters():
            marked(mesh, p, *([None] * (p.dim() - 1)), "x")
    else:
        fully(model, mesh, "x", 1)
    return trained(model, lambda m: language_loss(m, marked(mesh, integers(batch, 128), ids)))


def languages():
    for vocabulary, batch in ((1024, 64), (16384, 16)):
        table, stream = vocabulary * D * F32, batch * 128 * D * F32
        # Either the table moves (AG, AG, RS of the head; AG, RS of the embedding), or the tokens
        # do (AG in, RS of the gradient; RS of the rows found, AG of their gradients).
        head = min(3 * gathered(table, 8), 2 * gathered(stream, 8))
        embedding = min(2 * gathered(table, 8), 2 * gathered(stream, 8))
        ids = gathered(batch * 128 * I64, 8)
        least = sharded(2 * layer_bytes(D), 8) + head + embedding + ids
        run = functools.partial(language, vocabulary=vocabulary, batch=batch)
        name = f"FSDP language model, {vocabulary:,} words"
        yield Row(name, LINE, run, least, "2 AG + RS; of tables the least")
        if vocabulary > 1024:
            continue
        # Which dim is cut is all one to gathers; whole ids are sliced.
        for ids, text in (("x", "cut"), (None, "whole")):
            run = functools.partial(
                language, vocabulary=vocabulary, batch=batch, swapped=True, ids=ids
            )
            name = f"FSDP language model, second dims, ids {text}"
            yield Row(name, LINE, run, least, "2 AG + RS")


def images(mesh):
    model = convolutions(lambda width: nn.GroupNorm(8, width)).to("spmdx")
    fully(model, mesh, "x")
    return classify(mesh, model)


def rows():
    # In a net so short, weights stay gathered for backward; the head takes features instead.
    filters, features = 9 * (3 * 64 + 64 * 128 + 128 * 256) * F32, 64 * 256 * F32
    least = gathered(filters, 8) + scattered(filters, 8) + 2 * gathered(features, 8)
    cnn = Row("FSDP CNN", LINE, images, least, "AG + RS, AG + RS of features")
    return [*perceptrons(), *replicated(), *zero(), *languages(), cnn]
