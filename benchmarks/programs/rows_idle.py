# SPDX-License-Identifier: Apache-2.0
"""Programs whose annotations leave an axis idle for most of the net: it should share the rows.

What is whole is sliced for free, so every device can take its rows; weights that are whole are
then data parallel.
"""

import functools

from program_nets import Language, language_loss, layer_bytes
from program_row import F32, Row, exchanged, floats, gathered, integers, marked, reduced, trained
from torch import nn

LINE, GRID = {"x": 8}, {"data": 2, "model": 4}
LAYERS, ROWS, D = 4, 4096, 1024
STREAM, WEIGHT = ROWS * D * F32, D * D * F32
REST = reduced((LAYERS - 1) * WEIGHT, 8)


class Chain(nn.Module):
    """Square linear layers; `pin` sees what the first one makes."""

    def __init__(self, pin):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(LAYERS))
        self.pin = pin

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x).relu()
            x = self.pin(x) if i == 0 else x
        return x


def chain(mesh, batch=(), weight=(), pin=(), axes=None):
    model = Chain(lambda x: marked(mesh, x, *pin) if pin else x).to("spmdx")
    if weight:
        marked(mesh, model.layers[0].weight, *weight)
    return trained(model, lambda m: m(marked(mesh, floats(ROWS, D), *batch)).square().mean())


def chains():
    whole = reduced(LAYERS * WEIGHT, 8)
    run = functools.partial(chain, batch=(None, "x"))
    # Columns of the batch become rows.
    yield Row("batch cut by columns", LINE, run, exchanged(STREAM, 8) + whole, "A2A + AR P")
    both = 2 * exchanged(STREAM, 8)  # columns of a result become rows, its gradient goes back
    shard = 2 * gathered(WEIGHT, 8)  # the weight is gathered, its gradient scattered
    run = functools.partial(chain, weight=("x",))
    yield Row("one weight cut by outputs", LINE, run, min(both, shard) + REST, "2 A2A + AR rest")
    run = functools.partial(chain, weight=(None, "x"))
    turned = both + 2 * exchanged(WEIGHT, 8)  # inputs of the weight become outputs
    least = min(turned, shard) + REST
    yield Row("one weight cut by inputs", LINE, run, least, "2 A2A + 2 A2A w + AR rest")
    run = functools.partial(chain, pin=(None, "x"))
    # The pinned result is a product with a slice of the weight, whose gradient is gathered.
    least = both + gathered(WEIGHT, 8) + REST
    yield Row("one activation cut by columns", LINE, run, least, "2 A2A + AG dw + AR rest")
    run = functools.partial(chain, batch=("data",))
    yield Row("batch on one of two axes", GRID, run, whole, "AR P over both")
    run = functools.partial(chain, batch=("data",), weight=("model",))
    # Rows over both axes but where the weight's columns are: 2 A2A of a half, over four.
    both = 2 * exchanged(STREAM / 2, 4) + reduced(WEIGHT / 4, 2)
    shard = 2 * gathered(WEIGHT, 4) + reduced(WEIGHT / 4, 2)
    yield Row("batch on one axis, one weight on the other", GRID, run, min(both, shard) + REST, "")


# --- language models ------------------------------------------------------------------------------

WIDTH, BATCH, LENGTH, DEPTH = 512, 32, 128, 2
TOKENS = BATCH * LENGTH


def language(mesh, vocabulary, mark, batch=None):
    model = Language(vocabulary, DEPTH, WIDTH, 8).to("spmdx")
    mark(mesh, model)
    return trained(
        model, lambda m: language_loss(m, marked(mesh, integers(BATCH, LENGTH), batch)), steps=3
    )


def mark_mlps(mesh, model):
    for layer in model.layers:
        marked(mesh, layer.up.weight, "x")
        marked(mesh, layer.down.weight, None, "x")


def mark_vocabulary(mesh, model):
    for table in (model.tokens, model.head):
        marked(mesh, table.weight, "x")


def mark_nothing(mesh, model):
    pass


def languages():
    stream, square = TOKENS * WIDTH * F32, WIDTH * WIDTH * F32
    words, tables = 2048, 2 * 2048 * WIDTH * F32
    mlps = DEPTH * 8 * square
    # Rows are shared by sequences; MLPs gather and scatter tokens, or their weights are gathered
    # twice and scattered once. Whole weights: an all_reduce.
    inside = min(4 * DEPTH * gathered(stream, 8), 3 * gathered(mlps, 8))
    least = inside + reduced(DEPTH * 4 * square + tables, 8)
    run = functools.partial(language, vocabulary=words, mark=mark_mlps)
    yield Row("language model, only MLPs marked", LINE, run, least, "3 AG of MLPs + AR rest")
    words = 8192
    table = words * WIDTH * F32
    # Tokens or the table: rows that were found, their gradients; tokens of the head, gradients.
    head = min(2 * gathered(stream, 8) + 3 * reduced(TOKENS * F32, 8), 3 * gathered(table, 8))
    least = 2 * min(stream, table) * 7 / 8 + head + reduced(DEPTH * layer_bytes(WIDTH), 8)
    run = functools.partial(language, vocabulary=words, mark=mark_vocabulary)
    yield Row("language model, only vocabulary marked", LINE, run, least, "RS, AG twice + AR rest")
    words = 1024
    least = reduced(DEPTH * layer_bytes(WIDTH) + 2 * words * WIDTH * F32, 8)
    run = functools.partial(language, vocabulary=words, mark=mark_nothing, batch="data")
    yield Row("language model, batch on one of two axes", GRID, run, least, "AR P over both")


def rows():
    return [*chains(), *languages()]
