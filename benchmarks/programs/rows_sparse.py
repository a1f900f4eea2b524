# SPDX-License-Identifier: Apache-2.0
"""Programs that look rows up: graphs of nodes and edges, experts, tables of categories."""

import functools

import torch
import torch.nn.functional as F
from program_nets import Perceptron, perceptron_bytes
from program_row import (
    F32,
    I64,
    Row,
    exchanged,
    floats,
    gathered,
    integers,
    marked,
    reduced,
    repeated,
    scattered,
    sgd,
    trained,
)
from torch import nn

LINE, GRID = {"x": 8}, {"data": 2, "expert": 4}

# --- graphs ---------------------------------------------------------------------------------------

NODES, EDGES, WIDTH, DEPTH = 4096, 65536, 256, 2
STATE = NODES * WIDTH * F32


class Graph(nn.Module):
    """Messages along edges are added up at their targets. `edges`: a product for each message."""

    def __init__(self, edges):
        super().__init__()
        linear = functools.partial(nn.Linear, WIDTH, WIDTH, bias=False)
        self.before = nn.ModuleList(linear() for _ in range(DEPTH))
        self.after = nn.ModuleList(linear() for _ in range(DEPTH))
        self.edges = edges

    def forward(self, h, source, target):
        for before, after in zip(self.before, self.after, strict=True):
            if self.edges:
                messages = before(h[source]).relu()
            else:
                messages = before(h)[source]
            h = after(torch.zeros_like(h).index_add(0, target, messages)).relu()
        return h


def graph(mesh, nodes=None, edges=None, products=False):
    def loss(model):
        h = marked(mesh, floats(NODES, WIDTH), nodes)
        ends = (marked(mesh, integers(EDGES), edges) for _ in "st")
        return model(h, *ends).square().mean()

    return trained(Graph(products).to("spmdx"), loss)


def graphs():
    weights = reduced(2 * DEPTH * WIDTH * WIDTH * F32, 8)
    run = functools.partial(graph, nodes="x")
    # A device does all edges for its columns of the nodes' state: rows become columns before the
    # messages and rows again after them, and so do gradients.
    least = 4 * DEPTH * exchanged(STATE, 8) + weights
    yield Row("graph, nodes cut", LINE, run, least, "4L A2A + AR P")
    run = functools.partial(graph, edges="x", products=True)
    # Sums of messages are scattered to nodes and the new state is gathered; backward likewise. The
    # first state is whole and needs no gradient.
    least = 2 * (2 * DEPTH - 1) * gathered(STATE, 8) + weights
    yield Row("graph, edges cut", LINE, run, least, "4L - 2 of RS, AG + AR P")
    both = functools.partial(graph, nodes="x", edges="x", products=True)
    least = (4 * DEPTH - 1) * gathered(STATE, 8) + weights
    yield Row("graph, nodes and edges cut", LINE, both, least, "4L - 1 of AG, RS + AR P")


# --- experts --------------------------------------------------------------------------------------

GROUPS, TOKENS, MODEL, HIDDEN, EXPERTS, CAPACITY = 8, 512, 512, 2048, 8, 128


class Einsum(nn.Module):
    """Experts by einsum: dispatch, two products an expert, combine."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.empty(MODEL, EXPERTS))
        self.up = nn.Parameter(torch.empty(EXPERTS, MODEL, HIDDEN))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, MODEL))

    def forward(self, x, slots):
        weights = torch.einsum("gsm,me->gse", x, self.gate).softmax(-1)
        h = torch.einsum("gsec,gsm->egcm", slots, x)
        h = torch.einsum("egcm,emh->egch", h, self.up).relu()
        h = torch.einsum("egch,ehm->egcm", h, self.down)
        return torch.einsum("gsec,egcm->gsm", weights.unsqueeze(-1) * slots, h)


def einsum_experts(mesh, batch, axis):
    model = nn.ModuleList(Einsum() for _ in range(2)).to("spmdx")
    for layer in model:
        marked(mesh, layer.up, axis)
        marked(mesh, layer.down, axis)

    def loss(m):
        h = marked(mesh, floats(GROUPS, TOKENS, MODEL), batch)
        slots = marked(mesh, floats(GROUPS, TOKENS, EXPERTS, CAPACITY), batch)
        for layer in m:
            h = h + layer(h, slots)
        return h.square().mean()

    return trained(model, loss, sgd)


class Sorted(nn.Module):
    """Top-2 experts; tokens sorted by expert, a product for each group of them."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(MODEL, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(EXPERTS, MODEL, HIDDEN))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, MODEL))

    def forward(self, x):
        scores, chosen = self.router(x).softmax(-1).topk(2, -1)
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        ends = F.one_hot(chosen, EXPERTS).sum(0).cumsum(0).to(torch.int32)
        h = torch._grouped_mm(x[order // 2], self.up, offs=ends).relu()
        h = torch._grouped_mm(h, self.down, offs=ends) * scores.flatten()[order][:, None]
        return x + torch.zeros_like(x).index_add(0, order // 2, h)


def sorted_experts(mesh, train):
    model = nn.Sequential(*(Sorted() for _ in range(2))).to(torch.bfloat16).to("spmdx")
    for layer in model:
        marked(mesh, layer.up, "x")
        marked(mesh, layer.down, "x")

    def loss(m):
        x = marked(mesh, floats(4096, MODEL, dtype=torch.bfloat16), "x")
        return m(x).float().square().mean()

    if train:
        return trained(model, loss)
    with torch.no_grad():
        return repeated(lambda: loss(model))


def experts():
    sent = EXPERTS * GROUPS * CAPACITY * MODEL * F32
    run = functools.partial(einsum_experts, batch="x", axis="x")
    # To the experts and back, and so their gradients; the first tokens need none.
    least = 7 * exchanged(sent, 8)
    yield Row("experts by einsum", LINE, run, least, "4L - 1 A2A")
    run = functools.partial(einsum_experts, batch=("data", "expert"), axis="expert")
    # Exchanged within each half of the groups; experts' gradients are summed over the halves.
    least = 7 * exchanged(sent / 2, 4) + reduced(2 * 2 * EXPERTS * MODEL * HIDDEN * F32 / 4, 2)
    yield Row("experts by einsum, beside data", GRID, run, least, "4L - 1 A2A + AR P/m")
    stream = 4096 * MODEL * 2
    for train, count in ((False, 4), (True, 7)):
        run = functools.partial(sorted_experts, train=train)
        # How many tokens an expert has is not known: all are gathered, results are scattered.
        name = "sorted experts, " + ("training" if train else "inference")
        yield Row(name, LINE, run, count * gathered(stream, 8), "AG and RS of tokens")


# --- tables of categories -------------------------------------------------------------------------

TABLES, CATEGORIES, SHORT, ROWS = 8, 32768, 64, 4096


class Recommender(nn.Module):
    """Tables of categories, products of pairs of what was found, a perceptron on top."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(CATEGORIES, SHORT) for _ in range(TABLES))
        self.bottom = nn.Linear(16, SHORT, bias=False)
        self.top = Perceptron(1, (TABLES + 1) ** 2 + SHORT, 256)

    def forward(self, dense, ids):
        x = self.bottom(dense)
        found = [table(i) for table, i in zip(self.tables, ids, strict=True)]
        every = torch.stack([x, *found], 1)
        pairs = (every @ every.transpose(1, 2)).flatten(1)
        return self.top(torch.cat((x, pairs), 1))


def recommender(mesh, spec):
    model = Recommender().to("spmdx")
    for table in model.tables:
        marked(mesh, table.weight, *spec)

    def loss(m):
        ids = [marked(mesh, integers(ROWS), "x") for _ in m.tables]
        return m(marked(mesh, floats(ROWS, 16), "x"), ids).square().mean()

    return trained(model, loss, sgd)


def recommenders():
    found, ids = TABLES * ROWS * SHORT * F32, gathered(TABLES * ROWS * I64, 8)
    top = reduced(perceptron_bytes(1, (TABLES + 1) ** 2 + SHORT, 256), 8)
    # Each device looks all ids up in its part; what is found is summed into rows of the batch.
    by_rows = ids + scattered(found, 8) + gathered(found, 8) + top
    # Each device has some columns of all that is found; they become rows of the batch.
    by_columns = ids + 2 * exchanged(found, 8) + top
    run = functools.partial(recommender, spec=("x",))
    yield Row("recommender, tables cut by rows", LINE, run, by_rows, "AG ids, RS, AG + AR P")
    run = functools.partial(recommender, spec=(None, "x"))
    yield Row("recommender, tables cut by columns", LINE, run, by_columns, "AG ids, 2 A2A + AR P")
    run = functools.partial(recommender, spec=())
    # Whole tables: rows of the gradient are fewer than the tables' and are gathered, with ids.
    least = ids + gathered(found, 8) + top
    # That these are added up on every device is a little work.
    yield Row(
        "recommender, tables whole", LINE, run, least, "AG ids, rows of gradients + AR P", 1.1
    )


def rows():
    return [*graphs(), *experts(), *recommenders()]
