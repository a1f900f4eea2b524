# SPDX-License-Identifier: Apache-2.0
"""Twelve small models for torch.compile, and a trainer for any backend and mesh."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import models
import spmdx
import torch
import torch.nn.functional as F
from models import COLUMN, COLUMN_BIAS, ROW, Case, Trace, numbers
from torch import nn
from train_gpt import GPT, Config

LEVELS = 5  # classes of every model that sorts images or their pixels


class ResidualBlock(nn.Module):
    """Two convolutions around a shortcut, as in ResNet; the shortcut strides with them."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 6, 3, 1, 1, bias=False), nn.BatchNorm2d(6)
        self.shortcut = nn.Conv2d(3, 6, 1, 2)
        self.head = nn.Linear(6, LEVELS)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return self.head(F.relu(y + self.shortcut(x)).mean((2, 3)))


class UNet(nn.Module):
    """Down, up, and a skip between; sorts every pixel."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 6, 2, 2), nn.Conv2d(12, LEVELS, 3, padding=1)

    def forward(self, x):
        wide = F.silu(self.first(x))
        deep = F.silu(self.down(F.max_pool2d(wide, 2)))
        return self.last(torch.cat((wide, self.up(deep)), 1)).permute(0, 2, 3, 1)


class VAE(nn.Module):
    """Gives the reconstruction of a row of numbers, and mean and logarithm of the variance."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 12), nn.Tanh(), nn.Linear(12, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 10))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        noise = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
        return self.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance


def vae_loss(output, target):
    found, mean, log_variance = output
    divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(-1).mean() / 2
    return F.mse_loss(found, target) + 0.1 * divergence


class Experts(nn.Module):
    """A dense mixture: every expert sees every row, a softmax weighs them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(10, 4)
        self.up = nn.Parameter(torch.randn(4, 10, 16) / 4)
        self.down = nn.Parameter(torch.randn(4, 16, 6) / 4)

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        hidden = F.gelu(torch.einsum("bi,eih->beh", x, self.up))
        return torch.einsum("beh,eho,be->bo", hidden, self.down, weights)


class Norms(nn.Module):
    """Layer norm and group norm around convolutions over a sequence."""

    def __init__(self):
        super().__init__()
        self.rows, self.groups = nn.LayerNorm(6), nn.GroupNorm(2, 8)
        self.conv, self.head = nn.Conv1d(6, 8, 3, padding=1), nn.Linear(8, LEVELS)

    def forward(self, x):
        y = F.gelu(self.groups(self.conv(self.rows(x).transpose(1, 2))))
        return self.head(y.amax(-1))


class Tied(nn.Module):
    """A bag of words whose output layer is the table of its input."""

    def __init__(self):
        super().__init__()
        self.table, self.mix = nn.Embedding(12, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.table(ids))).cumsum(1))


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def gpt(dropout=0.0):
    return GPT(Config(vocab=24, layers=1, width=16, heads=4, context=8, dropout=dropout))


def images(n):
    return (numbers(n, 3, 8, 8),), torch.randint(LEVELS, (n,))


def pixels(n):
    return (numbers(n, 3, 8, 8),), torch.randint(LEVELS, (n, 8, 8))


def rows(n):
    return (numbers(n, 10),), torch.randint(6, (n,))


def row_and_itself(n):
    row = numbers(n, 10)
    return (row,), row


def sequences(n):
    return (numbers(n, 4, 6),), torch.randint(LEVELS, (n,))


def words(n):
    return (torch.randint(12, (n, 4)),), torch.randint(12, (n, 4))


def cross_entropy(output, target):
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


@dataclass(frozen=True)
class Compiled(Case):
    """A case with a loss of its own; random ones draw numbers while they train."""

    loss: Callable = cross_entropy
    random: bool = False


FEED_FORWARD = {"*.linear1.weight": COLUMN, "*.linear1.bias": COLUMN_BIAS, "*.linear2.weight": ROW}
TEXT, HEADS = models.CASES["gpt"].batch, models.CASES["gpt"].tensor_parallel
CASES = {
    "mlp": Compiled(models.mlp, rows, models.CASES["mlp"].tensor_parallel),
    "conv": Compiled(models.ConvNet, images),
    "lstm": Compiled(models.Reader, sequences),
    "encoder": Compiled(
        encoder, lambda n: ((numbers(n, 4, 8),), torch.randint(8, (n, 4))), FEED_FORWARD
    ),
    "gpt": Compiled(gpt, TEXT, HEADS),
    "unet": Compiled(UNet, pixels),
    "vae": Compiled(VAE, row_and_itself, loss=vae_loss, random=True),
    "experts": Compiled(
        Experts, rows, {"up": ("model", None, None), "down": ("model", None, None)}
    ),
    "residual": Compiled(ResidualBlock, images),
    "norms": Compiled(Norms, sequences),
    "tied": Compiled(Tied, words, {"table.weight": COLUMN}),
    "dropout": Compiled(lambda: gpt(0.3), TEXT, HEADS, random=True),
}


make = functools.partial(models.make, cases=CASES)
data = functools.partial(models.data, cases=CASES)


def mark_batch(tensors, mesh, plan):
    if mesh is not None and "data" in plan.axes:
        for t in tensors:
            spmdx.mark_sharding(t, mesh, ("data",) + (None,) * (t.dim() - 1))


def placed(name, plan, backend, device):
    """The model of a case, annotated and compiled as asked; and what to call."""
    model, mesh = make(name).to(device), plan.mesh() if plan is not None else None
    if mesh is not None:
        models.annotate(model, CASES[name], plan, mesh)
    called = model if backend is None else torch.compile(model, backend=backend)
    return model, called, mesh


def train(name, sizes, plan=None, backend=None, device="spmdx"):
    """Train a case: eager or compiled, on the CPU, unannotated, or on the mesh of ``plan``."""
    model, called, mesh = placed(name, plan, backend, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6)
    trace, losses = Trace(model=model, optimizer=optimizer), []
    for inputs, target in data(name, sizes):
        inputs, target = [t.to(device) for t in inputs], target.to(device)
        mark_batch((*inputs, target), mesh, plan)
        loss = CASES[name].loss(called(*inputs), target)
        loss.backward()
        trace.gradients.append({n: p.grad for n, p in model.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        spmdx.mark_step()
    trace.gradients = [{n: g.cpu() for n, g in held.items()} for held in trace.gradients]
    trace.losses = [loss.item() for loss in losses]
    trace.state = {n: t.detach().cpu() for n, t in model.state_dict().items()}
    return trace


def outputs(name, sizes, mode, plan=None, backend=None, device="spmdx"):
    """What the model of a case gives in evaluation, under a mode such as torch.no_grad."""
    model, called, mesh = placed(name, plan, backend, device)
    model.eval()
    found = []
    for inputs, _ in data(name, sizes):
        inputs = [t.to(device) for t in inputs]
        mark_batch(inputs, mesh, plan)
        with mode():
            given = called(*inputs)
        found += [t.detach().cpu() for t in (given if isinstance(given, tuple) else (given,))]
    return found
