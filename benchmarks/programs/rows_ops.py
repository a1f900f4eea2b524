# SPDX-License-Identifier: Apache-2.0
"""Products and reductions over a cut dim: what a few ops together have to move."""

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
    trained,
)
from torch import nn

LINE, GRID = {"x": 8}, {"row": 2, "column": 4}
M = 2048
MATRIX = M * M * F32


def forward(mesh, function, *operands):
    """`operands`: (shape, spec); the result is kept, in whatever layout it has."""
    tensors = [marked(mesh, floats(*shape), *spec) for shape, spec in operands]
    return repeated(lambda: function(mesh, *tensors))


def program(name, function, operands, least, why, axes=LINE, **options):
    run = functools.partial(planned, function=function, operands=operands)
    return Row(name, axes, run, least, why, **options)


def planned(mesh, function, operands):
    return forward(mesh, function, *operands)


# --- products -------------------------------------------------------------------------------------


def square(*spec):
    return (M, M), spec


def products():
    columns, inner = square(None, "x"), square("x")
    yield program(
        "product over a cut dim, result cut", lambda mesh, a, b: marked(mesh, a @ b, "x"),
        (columns, inner), scattered(MATRIX, 8), "RS",
    )  # fmt: skip
    yield program(
        "product over a cut dim, result whole", lambda mesh, a, b: marked(mesh, a @ b),
        (columns, inner), reduced(MATRIX, 8), "AR",
    )  # fmt: skip
    yield program(
        "two products added", lambda mesh, a, b, c, d: marked(mesh, a @ b + c @ d),
        (columns, inner, columns, inner), reduced(MATRIX, 8), "partial sums are added: AR",
    )  # fmt: skip
    yield program(
        "chain of four products", lambda mesh, x, a, b, c, d: marked(mesh, x @ a @ b @ c @ d, "x"),
        (square("x"), columns, inner, columns, inner), 4 * gathered(MATRIX, 8),
        "AG, RS, twice; or AG of each matrix",
    )  # fmt: skip
    # Rows of one operand along columns of devices, columns of the other along rows.
    least = gathered(MATRIX / 2, 4) + gathered(MATRIX / 4, 2)
    both = square("row", "column")
    yield program(
        "product of matrices cut twice", lambda mesh, a, b: marked(mesh, a @ b, "row", "column"),
        (both, both), least, "AG of rows, AG of columns", GRID,
    )  # fmt: skip


def scattered_product(mesh, scale):
    a, w = marked(mesh, floats(8192, M), None, "x"), marked(mesh, floats(M, 512), "x")
    x, i, s = marked(mesh, floats(4096, 512), "x"), integers(8192), floats(8192, 1)

    def step():
        y = (a @ w) * s if scale else a @ w
        return marked(mesh, x + torch.zeros_like(x).index_add(0, i, y), "x")

    return repeated(step)


def sums():
    for scale in (False, True):
        run = functools.partial(scattered_product, scale=scale)
        name = "partial product into index_add" + (", scaled" if scale else "")
        # Adding rows up is linear: partial sums are added before they are scattered.
        yield Row(name, LINE, run, scattered(4096 * 512 * F32, 8), "RS of the result")


# --- along a cut dim ------------------------------------------------------------------------------

ROWS, LONG = 4096, 8192


def along():
    cut, n = (((ROWS, LONG), (None, "x")),), ROWS * F32
    whole = ROWS * LONG * F32
    ops = {
        "softmax": (lambda mesh, x: x.softmax(-1), 2 * reduced(n, 8), "AR max, sum"),
        "logsumexp": (lambda mesh, x: x.logsumexp(-1), 2 * reduced(n, 8), "AR max, sum"),
        "layer_norm": (
            *(lambda mesh, x: F.layer_norm(x, (LONG,)), 2 * reduced(n, 8), "AR mean, variance"),
        ),
        "cumsum": (
            lambda mesh, x: x.cumsum(-1),
            2 * exchanged(8 * n, 8),
            "A2A of parts' totals, and back",
        ),
        "argmax": (
            lambda mesh, x: x.argmax(-1),
            exchanged(8 * ROWS * (F32 + I64), 8),
            "A2A of maxima",
        ),
        "sort": (lambda mesh, x: x.sort(-1).values, exchanged(whole, 8), "A2A to rows"),
        "top 50": (
            *(lambda mesh, x: x.topk(50)[0], exchanged(8 * ROWS * 50 * F32, 8)),
            "A2A of parts' first 50",
        ),
    }
    for name, (function, least, why) in ops.items():
        yield program(f"{name} of a cut dim", function, cut, least, why, small=4096)


class Normed(nn.Module):
    """A softmax and a norm over a cut dim, with gradients."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2048, LONG))

    def forward(self, x):
        return F.layer_norm((x + self.weight).softmax(-1), (LONG,))


def normed(mesh):
    model = Normed().to("spmdx")
    marked(mesh, model.weight, None, "x")
    return trained(model, lambda m: m(floats(2048, LONG)).square().mean())


# --- contrastive ----------------------------------------------------------------------------------

PAIRS, WIDTH, FEATURES = 4096, 256, 512


class Towers(nn.Module):
    """Two nets whose results for the same pair should be alike, and unlike those of other pairs."""

    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList(Perceptron(1, WIDTH, FEATURES) for _ in range(2))

    def forward(self, *sides):
        a, b = (F.normalize(t(x), dim=-1) for t, x in zip(self.towers, sides, strict=True))
        scores, pairs = a @ b.t() * 20, torch.arange(PAIRS, device=a.device)
        return F.cross_entropy(scores, pairs) + F.cross_entropy(scores.t(), pairs)


def contrast(mesh):
    def loss(m):
        return m(*(marked(mesh, floats(PAIRS, WIDTH), "x") for _ in "ab"))

    return trained(Towers().to("spmdx"), loss)


def rows():
    # Maximum and sum forward, a sum backward; mean and variance forward, two sums backward.
    stats = 7 * reduced(2048 * F32, 8)
    net = Row("softmax and layer_norm of a cut dim, training", LINE, normed, stats, "AR of rows")
    # One side's results are gathered, its gradient scattered; of columns the softmax's sums.
    side = PAIRS * WIDTH * F32
    least = 2 * gathered(side, 8) + 3 * reduced(PAIRS * F32, 8)
    least += reduced(2 * perceptron_bytes(1, WIDTH, FEATURES), 8)
    clip = Row("contrastive loss", LINE, contrast, least, "AG, RS of one side + AR P")
    return [*products(), *sums(), *along(), net, clip]
