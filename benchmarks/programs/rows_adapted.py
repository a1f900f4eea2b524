# SPDX-License-Identifier: Apache-2.0
"""Programs with parts that are not trained, with parts computed again, and of odd sizes."""

import functools

import torch
import torch.nn.functional as F
from program_nets import Layer, Perceptron, fully, megatron, perceptron_bytes
from program_row import F32, Row, floats, gathered, marked, reduced, scattered, trained
from torch import nn
from torch.utils.checkpoint import checkpoint

D, H, BLOCKS, ROWS, RANK = 512, 2048, 8, 8192, 16
LINE, SIX, WIDE = {"x": 8}, {"x": 6}, {"x": 64}
MLP, FIRST = perceptron_bytes(BLOCKS, D, H), D * H * F32

# --- frozen parts ---------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A frozen product and a trained one of low rank."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def adapted(mesh, sharded):
    layers = (Adapted(m) if isinstance(m, nn.Linear) else m for m in Perceptron(BLOCKS, D, H))
    model = nn.Sequential(*layers).to("spmdx")
    for m in model if sharded else ():
        if isinstance(m, Adapted):
            marked(mesh, m.linear.weight, "x")
    return trained(model, lambda m: m(marked(mesh, floats(ROWS, D), "x")).square().mean())


def adapters():
    small = reduced(BLOCKS * 2 * (D + H) * RANK * F32, 8)
    run = functools.partial(adapted, sharded=False)
    yield Row("adapters, data parallel", LINE, run, small, "AR adapters")
    run = functools.partial(adapted, sharded=True)
    # Frozen weights have no gradients; the first one is not needed backward.
    least = gathered(2 * MLP - FIRST, 8) + small
    yield Row("adapters on FSDP weights", LINE, run, least, "2 AG + AR adapters")


class Pair(nn.Module):
    """A student that learns what a larger, frozen teacher says."""

    def __init__(self):
        super().__init__()
        self.teacher = Perceptron(BLOCKS, D, H).requires_grad_(False)
        self.student = Perceptron(2, D, H)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher(x)
        return F.mse_loss(self.student(x), wanted)


def distilled(mesh):
    model = Pair().to("spmdx")
    fully(model.teacher, mesh, "x")
    return trained(model, lambda m: m(marked(mesh, floats(ROWS, D), "x")))


def averaged(mesh):
    """A running average of all parameters is kept."""
    model = Perceptron(2, D, H).to("spmdx")
    copies = [p.detach().clone() for p in model.parameters()]

    def average(m):
        for copy, p in zip(copies, m.parameters(), strict=True):
            copy.lerp_(p.detach(), 0.01)

    def loss(m):
        return m(marked(mesh, floats(ROWS, D), "x")).square().mean()

    return trained(model, loss, after_backward=average)


def teachers():
    student = reduced(perceptron_bytes(2, D, H), 8)
    least = gathered(MLP, 8) + student
    yield Row("distillation, FSDP teacher", LINE, distilled, least, "AG of teacher + AR student")
    yield Row("data parallel MLP, averaged", LINE, averaged, student, "AR P")


# --- computed again -------------------------------------------------------------------------------

WIDTH, LAYERS, BATCH, LENGTH = 1024, 3, 16, 128
STREAM = BATCH * LENGTH * WIDTH * F32


class Recomputed(nn.ModuleList):
    def forward(self, x):
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)
        return x


def recomputed(mesh, how):
    model = Recomputed(Layer(WIDTH, 16) for _ in range(LAYERS)).to("spmdx")
    for layer in model:
        megatron(layer, mesh, "x") if how == "tensor" else fully(layer, mesh, "x")
    batch = None if how == "tensor" else "x"

    def loss(m):
        return m(marked(mesh, floats(BATCH, LENGTH, WIDTH), batch)).square().mean()

    return trained(model, loss)


def again():
    # The first sum of a layer is made again; nobody reads the second one again.
    least = (5 * LAYERS - 1) * reduced(STREAM, 8)
    run = functools.partial(recomputed, how="tensor")
    yield Row("TP layers, recomputed", LINE, run, least, "5L - 1 AR")


# --- convolutions by channels ---------------------------------------------------------------------

CHANNELS, INNER, SIDE = 512, 1024, 8


def channels(mesh):
    model = nn.Sequential()
    for _ in range(2):
        up = nn.Conv2d(CHANNELS, INNER, 3, padding=1, bias=False)
        down = nn.Conv2d(INNER, CHANNELS, 3, padding=1, bias=False)
        model.extend([up, nn.BatchNorm2d(INNER, affine=False), nn.ReLU(), down])
    model.to("spmdx")
    for up, _, _, down in zip(*[iter(model)] * 4, strict=True):
        marked(mesh, up.weight, "x")
        marked(mesh, down.weight, None, "x")
    return trained(model, lambda m: m(floats(8, CHANNELS, SIDE, SIDE)).square().mean())


# --- odd sizes ------------------------------------------------------------------------------------


def perceptron(mesh, rows=ROWS, blocks=2, how="data", hidden=H, width=D):
    model = Perceptron(blocks, width, hidden).to("spmdx")
    if how == "sharded":
        fully(model, mesh, "x")
    for up, _, down in zip(*[iter(model)] * 3, strict=True) if how == "tensor" else ():
        marked(mesh, up.weight, "x")
        marked(mesh, down.weight, None, "x")
    batch = None if how == "tensor" else "x"
    return trained(model, lambda m: m(marked(mesh, floats(rows, width), batch)).square().mean())


def odd():
    least = reduced(perceptron_bytes(2, D, H), 6)
    # A device has 1366 rows of 8192, the last one 1362.
    yield Row("data parallel MLP, 6 devices", SIX, perceptron, least, "AR P")
    run = functools.partial(perceptron, rows=2048, how="tensor", width=1024, hidden=4096)
    # 683 of 4096 columns: a little more work than a sixth.
    least = 3 * reduced(2048 * 1024 * F32, 6)
    yield Row("TP MLP, 6 devices", SIX, run, least, "2L - 1 AR")
    run = functools.partial(perceptron, blocks=BLOCKS, how="sharded")
    n = perceptron_bytes(BLOCKS, D, H)
    least = gathered(2 * n - FIRST, 6) + scattered(n, 6)
    yield Row("FSDP MLP, 6 devices", SIX, run, least, "2 AG + RS")
    run = functools.partial(perceptron, blocks=BLOCKS, how="sharded", rows=65536)
    least = gathered(2 * n - FIRST, 64) + scattered(n, 64)
    yield Row("FSDP MLP, 64 devices", WIDE, run, least, "2 AG + RS")


def rows():
    least = 3 * reduced(8 * CHANNELS * SIDE * SIDE * F32, 8)
    conv = Row("convolutions cut by channels", LINE, channels, least, "2L - 1 AR")
    return [*adapters(), *teachers(), *again(), conv, *odd()]
