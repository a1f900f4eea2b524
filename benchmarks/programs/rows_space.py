# SPDX-License-Identifier: Apache-2.0
"""Images whose rows are cut: convolutions with halos, a U-Net, a vision transformer."""

import functools

import torch
import torch.nn.functional as F
from program_nets import layer_bytes
from program_row import F32, Row, exchanged, floats, integers, marked, reduced, repeated, trained
from torch import nn

LINE, GRID = {"x": 8}, {"data": 2, "model": 4}
SIDE, WIDTH = 512, 32
PLANE = SIDE * F32  # bytes of a row of one channel


def convolution(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


def chain(mesh, train):
    model = nn.Sequential(convolution(3, WIDTH), nn.ReLU(), convolution(WIDTH, WIDTH), nn.ReLU())
    model.append(convolution(WIDTH, 3)).to("spmdx")

    def loss(m):
        return m(marked(mesh, floats(1, 3, SIDE, SIDE), None, None, "x")).square().mean()

    if train:
        return trained(model, loss)
    with torch.no_grad():
        return repeated(lambda: loss(model))


def chains():
    # A row above and one below of each convolution's input.
    forward = 2 * (3 + 2 * WIDTH) * PLANE
    run = functools.partial(chain, train=False)
    yield Row("convolutions, rows cut, inference", LINE, run, forward, "2 rows of inputs")
    # Backward the same rows of results' gradients; the first input needs none.
    back = 2 * (WIDTH + 3) * PLANE
    weights = reduced(9 * WIDTH * (3 + WIDTH + 3) * F32, 8)
    run = functools.partial(chain, train=True)
    why = "2 rows each way + AR P"
    yield Row("convolutions, rows cut, training", LINE, run, forward + back + weights, why)


# --- a U-Net --------------------------------------------------------------------------------------


class Net(nn.Module):
    """Two convolutions a level; down by pooling, up by transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([self.pair(3, 32), self.pair(32, 64)])
        self.middle = self.pair(64, 128)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)]
        )
        self.join = nn.ModuleList([self.pair(128, 64), self.pair(64, 32)])
        self.out = nn.Conv2d(32, 3, 1)

    @staticmethod
    def pair(inputs, outputs):
        first, second = convolution(inputs, outputs), convolution(outputs, outputs)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

    def forward(self, x):
        kept = []
        for level in self.down:
            kept.append(level(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((up(x), kept.pop()), 1))
        return self.out(x)


# Inputs and outputs of convolutions of three by three, and by how much their images are smaller.
CONVOLUTIONS = (
    *((3, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 2), (64, 128, 4), (128, 128, 4)),
    *((128, 64, 2), (64, 64, 2), (64, 32, 1), (32, 32, 1)),
)
NET = F32 * (sum(9 * a * b for a, b, _ in CONVOLUTIONS) + 4 * (128 * 64 + 64 * 32) + 32 * 3)


def segment(mesh, batch, spec):
    def loss(m):
        x = marked(mesh, floats(batch, 3, SIDE // 2, SIDE // 2), *spec)
        return m(x).square().mean()

    return trained(Net().to("spmdx"), loss)


def nets():
    run = functools.partial(segment, batch=16, spec=("x",))
    yield Row("U-Net, batch cut", LINE, run, reduced(NET, 8), "AR P")
    # Two rows of every input, two rows of the gradient of every output but the first's.
    halos = sum(2 * a * PLANE / 2 / s for a, _, s in CONVOLUTIONS)
    back = sum(2 * b * PLANE / 2 / s for _, b, s in CONVOLUTIONS[1:])
    run = functools.partial(segment, batch=1, spec=(None, None, "x"))
    yield Row("U-Net, rows cut", LINE, run, reduced(NET, 8) + halos + back, "rows each way + AR P")
    run = functools.partial(segment, batch=2, spec=("data", None, "model"))
    name = "U-Net, batch and rows cut"
    yield Row(name, GRID, run, reduced(NET, 8) + halos + back, "rows each way + AR P")


# --- a vision transformer -------------------------------------------------------------------------

IMAGES, PIXELS, MODEL = 64, 224, 384


class Vision(nn.Module):
    """Patches of 16 by 16 and a class token; its result is classified."""

    def __init__(self):
        super().__init__()
        layer = functools.partial(nn.TransformerEncoderLayer, dropout=0.0, batch_first=True)
        self.patches = nn.Conv2d(3, MODEL, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, MODEL))
        self.blocks = nn.ModuleList(layer(MODEL, 6, 4 * MODEL, norm_first=True) for _ in range(2))
        self.head = nn.Linear(MODEL, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def classify(mesh, spec, model=None):
    def loss(m):
        x = marked(mesh, floats(IMAGES, 3, PIXELS, PIXELS), *spec)
        return F.cross_entropy(m(x), marked(mesh, integers(IMAGES), spec[0]))

    return trained((model or Vision()).to("spmdx"), loss)


def visions():
    weights = 2 * layer_bytes(MODEL) + (3 * 16 * 16 + 1000) * MODEL * F32
    images = IMAGES * 3 * PIXELS * PIXELS * F32
    run = functools.partial(classify, spec=(("data", "model"),))
    yield Row("vision transformer, batch cut", GRID, run, reduced(weights, 8), "AR P")
    run = functools.partial(classify, spec=("data", None, "model"))
    # 197 tokens do not keep the cut: rows of images become images.
    least = exchanged(images / 2, 4) + reduced(weights, 8)
    yield Row("vision transformer, rows cut", GRID, run, least, "A2A of images + AR P")


def rows():
    return [*chains(), *nets(), *visions()]
