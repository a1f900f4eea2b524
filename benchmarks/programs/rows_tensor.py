# SPDX-License-Identifier: Apache-2.0
"""Tensor parallel programs, alone and beside other axes: Megatron's layers, by heads and columns.

A layer has two sums of the residual stream forward and two backward. A first layer without an
embedding below has one backward: its input needs no gradient. A sum is an all_reduce, or the
reduce_scatter and all_gather of sequence parallelism: as many bytes.
"""

import functools

from program_nets import Language, Perceptron, language_loss, layer_bytes, megatron, stack
from program_row import (
    F32,
    Row,
    exchanged,
    floats,
    gathered,
    integers,
    marked,
    reduced,
    scattered,
    trained,
)
from torch import nn

D, HEADS, LAYERS, BATCH, LENGTH = 1024, 16, 2, 16, 128
STREAM = BATCH * LENGTH * D * F32  # bytes of the residual stream
COLUMN_OF_TOKENS = BATCH * LENGTH * F32  # one number a token
WORDS = 8192
LINE, GRID = {"x": 8}, {"data": 2, "model": 4}
CUBE = {"data": 2, "fsdp": 2, "model": 2}


def perceptron(mesh, batch=None, axis="x"):
    model = Perceptron(LAYERS, D, 4 * D).to("spmdx")
    for up, _, down in zip(*[iter(model)] * 3, strict=True):
        marked(mesh, up.weight, axis)
        marked(mesh, down.weight, None, axis)
    return trained(model, lambda m: m(marked(mesh, floats(2048, D), batch)).square().mean())


def layers(mesh, axis="x", other=None, batch=None, pin=None, **options):
    """`batch` cuts the sequences, `other` the weights' other dim, `pin` the residual stream."""
    noted = (lambda x: marked(mesh, x, *pin)) if pin else None
    model = stack(LAYERS, D, HEADS, pin=noted, **options)
    for layer in model:
        megatron(layer, mesh, axis, other)
    return trained(model, lambda m: m(sequences(mesh, batch)).square().mean())


def sequences(mesh, batch):
    return marked(mesh, floats(BATCH, LENGTH, D), batch)


def language(mesh, axis="x", other=None, batch=None, pin=None, tied=False):
    noted = (lambda x: marked(mesh, x, *pin)) if pin else None
    model = Language(WORDS, LAYERS, D, HEADS, pin=noted, tied=tied).to("spmdx")
    for layer in model.layers:
        megatron(layer, mesh, axis, other)
    for table in (model.tokens, model.head):
        marked(mesh, table.weight, axis, other)
    return trained(model, lambda m: language_loss(m, marked(mesh, integers(BATCH, LENGTH), batch)))


def sums(count, g, shares=1):
    """So many sums of a share of the residual stream."""
    return count * reduced(STREAM / shares, g)


def of_language(g, shares=1):
    """Sums: four a layer, the embedding's rows, the head's gradient; three numbers a token for the
    loss of a cut vocabulary (maximum, sum, the target's)."""
    return sums(4 * LAYERS + 2, g, shares) + 3 * reduced(COLUMN_OF_TOKENS / shares, g)


WEIGHTS = LAYERS * layer_bytes(D)  # all that tensor parallelism cuts
TABLES = 2 * WORDS * D * F32
MLPS = LAYERS * 8 * D * D * F32


# Saved: the whole input, both hidden values of a block and its result, of which a device needs to
# keep its tokens; backward begins with a gathered gradient and one hidden value's.
TP_PEAK = 3 * MLPS / 8 + STREAM + LAYERS * (STREAM + STREAM / 8) + 2 * STREAM + STREAM / 8


def alone():
    yield Row(
        "TP MLP", LINE, perceptron, sums(2 * LAYERS - 1, 8), "2L - 1 AR",
        peak=TP_PEAK,
    )  # fmt: skip
    yield Row("TP layers", LINE, layers, sums(4 * LAYERS - 1, 8), "4L - 1 AR")
    grouped = functools.partial(layers, kv_heads=8)
    yield Row("TP layers, grouped heads", LINE, grouped, sums(4 * LAYERS - 1, 8), "4L - 1 AR")
    pinned = functools.partial(layers, pin=(None, "x"))
    name = "TP layers, sequence parallel"
    yield Row(name, LINE, pinned, sums(4 * LAYERS - 1, 8), "4L - 1 of RS + AG")
    yield Row("TP language model", LINE, language, of_language(8), "4L + 2 AR")
    tied = functools.partial(language, tied=True)
    yield Row("TP language model, tied", LINE, tied, of_language(8), "4L + 2 AR")
    pinned = functools.partial(language, pin=(None, "x"))
    name = "TP language model, sequence parallel"
    yield Row(name, LINE, pinned, of_language(8), "4L + 2 of RS + AG")


def beside_data():
    for shape in ((2, 4), (4, 2)):
        d, m = shape
        mesh = dict(zip(("data", "model"), shape, strict=True))
        name = f"{d} x {m}"
        run = functools.partial(perceptron, batch="data", axis="model")
        # Each device sums the gradients of its weights over the rows of other devices.
        least = sums(2 * LAYERS - 1, m, d) + reduced(MLPS / m, d)
        yield Row(f"DP x TP MLP, {name}", mesh, run, least, "2L - 1 AR + AR P/m")
        run = functools.partial(layers, axis="model", batch="data")
        least = sums(4 * LAYERS - 1, m, d) + reduced(WEIGHTS / m, d)
        yield Row(f"DP x TP layers, {name}", mesh, run, least, "4L - 1 AR + AR P/m")
    run = functools.partial(language, axis="model", batch="data")
    # Rows of the embedding's gradient are fewer than its part of the table: they are gathered.
    table = TABLES / 2 / 4
    embedding = min(reduced(table, 2), gathered(STREAM, 2))
    least = of_language(4, 2) + reduced(WEIGHTS / 4 + table, 2) + embedding
    yield Row("DP x TP language model", GRID, run, least, "4L + 2 AR + AR P/m")
    run = functools.partial(layers, axis="model", batch="data", pin=("data", "model"))
    least = sums(4 * LAYERS - 1, 4, 2) + reduced(WEIGHTS / 4, 2)
    yield Row("DP x TP layers, sequence parallel", GRID, run, least, "4L - 1 RS + AG, AR P/m")


def sharded(n, g):
    """Weights gathered forward and backward, their gradients scattered."""
    return 2 * gathered(n, g) + scattered(n, g)


def beside_shards():
    run = functools.partial(layers, axis="model", other="data", batch="data")
    least = sums(4 * LAYERS - 1, 4, 2) + sharded(WEIGHTS / 4, 2)
    yield Row("FSDP x TP layers", GRID, run, least, "4L - 1 AR, 2 AG + RS of P/m")
    run = functools.partial(run, pin=("data", "model"))
    yield Row("FSDP x TP layers, sequence parallel", GRID, run, least, "as without")
    run = functools.partial(run, pin=("data", None, "model"))
    # The cut is of the width: gathered before columns, scattered after rows.
    yield Row("GSPMD 2D finalized, layers", GRID, run, least, "4L - 1 of RS + AG, 2 AG + RS")
    run = functools.partial(language, axis="model", other="data", batch="data")
    # The embedding finds half of the width for all tokens, and exchanges it over data; gradients
    # likewise. The head is gathered once, as backward follows at once, its gradient scattered.
    head = gathered(TABLES / 2 / 4, 2) + scattered(TABLES / 2 / 4, 2)
    least = of_language(4, 2) + sharded(WEIGHTS / 4, 2) + head + 2 * exchanged(STREAM, 2)
    yield Row("FSDP x TP language model", GRID, run, least, "4L + 2 AR, 2 AG + RS of P/m")
    run = functools.partial(run, pin=("data", None, "model"))
    yield Row("GSPMD 2D finalized, language", GRID, run, least, "as FSDP x TP")


def three_axes():
    run = functools.partial(layers, axis="model", other="fsdp", batch=("data", "fsdp"))
    # Shards of gradients are summed over the axis that holds copies.
    shards = sharded(WEIGHTS / 2, 2) + reduced(WEIGHTS / 4, 2)
    least = sums(4 * LAYERS - 1, 2, 4) + shards
    yield Row("DP x FSDP x TP layers", CUBE, run, least, "AR; 2 AG + RS; AR of shards")
    run = functools.partial(layers, axis="model", batch=("data", "fsdp"))
    least = sums(4 * LAYERS - 1, 2, 4) + reduced(WEIGHTS / 2, 4)
    yield Row("DP over two axes x TP layers", CUBE, run, least, "4L - 1 AR + AR P/m")
    both = ("fsdp", "model")
    run = functools.partial(layers, axis=both, batch="data")
    least = sums(4 * LAYERS - 1, 4, 2) + reduced(WEIGHTS / 4, 2)
    yield Row("DP x TP over two axes, layers", CUBE, run, least, "4L - 1 AR + AR P/m")


# --- PyTorch's own layer: q, k and v in one matrix ------------------------------------------------


def encoder(mesh, axis="x", batch=None):
    layer = functools.partial(nn.TransformerEncoderLayer, dropout=0.0, batch_first=True)
    model = nn.Sequential(*(layer(D, HEADS, 4 * D) for _ in range(LAYERS))).to("spmdx")
    for block in model:
        for name in ("linear1", "self_attn"):
            part = getattr(block, name)
            prefix = "" if name == "linear1" else "in_proj_"
            marked(mesh, getattr(part, prefix + "weight"), axis)
            marked(mesh, getattr(part, prefix + "bias"), axis)
        marked(mesh, block.linear2.weight, None, axis)
        marked(mesh, block.self_attn.out_proj.weight, None, axis)
    return trained(model, lambda m: m(sequences(mesh, batch)).square().mean())


def encoders():
    for d, m in ((1, 8), (2, 4), (4, 2)):
        run = functools.partial(encoder, axis="model", batch="data")
        mesh = {"data": d, "model": m}
        # Consecutive parts of q | k | v are no heads: the matrix is laid out anew, its gradient
        # back. This is what the device that has least of its heads lacks.
        lacks = {2: 1 / 3, 4: 2 / 3, 8: 1}[m]
        moved = LAYERS * 2 * lacks * 3 * D * D * F32 / m
        # Of the first layer, which has no norm before its products, nothing goes back.
        least = sums(4 * LAYERS - 1, m, d) + reduced(WEIGHTS / m, d) + moved
        yield Row(f"TransformerEncoderLayer, {d} x {m}", mesh, run, least, "4L - 1 AR + q|k|v")


# --- one language model at several sizes ----------------------------------------------------------
#
# With many sequences a plan may cut them over the model's axis as well, with few it may not; what
# has to move is the same.

SMALL_WIDTH, LONG_LIST = 512, 16384
SMALL_STREAM, LIST = BATCH * LENGTH * SMALL_WIDTH * F32, LONG_LIST * SMALL_WIDTH * F32


def listed(mesh, sequences, other=None):
    model = Language(LONG_LIST, LAYERS, SMALL_WIDTH, 8).to("spmdx")
    for layer in model.layers:
        megatron(layer, mesh, "model", other)
    for table in (model.tokens, model.head):
        marked(mesh, table.weight, "model", other)

    def loss(m):
        ids = marked(mesh, integers(sequences, BATCH * LENGTH // sequences), "data")
        return language_loss(m, ids)

    return trained(model, loss)


def least_of_list(d, m, other):
    """Four sums a layer, one of the embedding, one of the head, three numbers a token. Gradients
    are summed over data, the embedding's by its rows if they are fewer. Where weights are cut by
    it, too, they are gathered twice and scattered, the head once; the embedding's rows and
    gradients are exchanged."""
    sums = (4 * LAYERS + 2) * reduced(SMALL_STREAM / d, m) + 3 * reduced(COLUMN_OF_TOKENS / d, m)
    weights = LAYERS * layer_bytes(SMALL_WIDTH) / m
    if other is None:
        embedding = min(reduced(LIST / m, d), gathered(SMALL_STREAM, d))
        return sums + reduced(weights + LIST / m, d) + embedding
    head = gathered(LIST / m, d) + scattered(LIST / m, d)
    return sums + sharded(weights, d) + head + 2 * exchanged(SMALL_STREAM, d)


def sizes():
    found = []
    for d, m in ((1, 2), (1, 4), (1, 8), (2, 4), (4, 4)):
        for sequences in (32, 4):
            for other in (None, "data") if d > 1 else (None,):
                run = functools.partial(listed, sequences=sequences, other=other)
                kind = "FSDP x TP" if other else "TP"
                name = f"{kind} language model, {sequences} sequences, {d} x {m}"
                why = "4L + 2 AR, " + ("2 AG + RS of P/m" if other else "AR P/m")
                axes = {"data": d, "model": m}
                found.append(Row(name, axes, run, least_of_list(d, m, other), why))
    return found


def rows():
    return [*alone(), *beside_data(), *beside_shards(), *three_axes(), *encoders(), *sizes()]
