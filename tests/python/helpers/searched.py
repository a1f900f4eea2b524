# SPDX-License-Identifier: Apache-2.0
"""Programs that a strategy is searched for: a model, its optimizer, a step and a batch."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, WIDTH, HEADS = 48, 8, 32, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.norm(x)
        q, k, v = (f(y).view(b, t, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.last(x))))


class Gpt(nn.Module):
    """With a head that shares the weight of the embedding, if that is asked for."""

    def __init__(self, tied=False, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class WithOwn(nn.Module):
    """A parameter and a buffer of its own beside its layers, and a layer that does not learn."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 16))
        self.mix = nn.Parameter(torch.eye(16) + 0.1)
        self.register_buffer("shift", torch.linspace(-1, 1, 16))
        self.layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
        self.frozen = nn.Linear(16, 16).requires_grad_(False)

    def forward(self, x):
        return self.frozen(self.layers(x * self.scale + self.shift) @ self.mix)


def mlp():
    parts = [[nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)] for _ in range(3)]
    return nn.Sequential(*(module for part in parts for module in part))


def convolutions():
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10))


def ids(samples):
    return torch.arange(samples * LENGTH).reshape(samples, LENGTH) * 7 % VOCAB


def images(samples):
    return torch.linspace(-1, 1, samples * 3 * 8 * 8).sin().reshape(samples, 3, 8, 8)


def rows(samples):
    return torch.linspace(-2, 2, samples * 16).sin().reshape(samples, 16)


MODELS = {
    "mlp": (mlp, rows),
    "gpt": (Gpt, ids),
    "tied": (lambda: Gpt(tied=True), ids),
    "convolutions": (convolutions, images),
    "own": (WithOwn, rows),
}


@dataclass
class Program:
    """A model with what trains it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batch: Any

    def step(self, batches):
        for x in batches:
            out = self.model(x).flatten(1)
            loss = (out - out.detach().flip(-1)).square().mean() + out.square().mean()
            (loss / len(batches)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def step_of(model, optimizer, loss=lambda out, x: out.square().mean()):
    """A step of a list of microbatches, by a loss of what the model makes of one."""

    def step(batches):
        for x in batches:
            (loss(model(x), x) / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def program(name, device, samples=16, optimizer=torch.optim.AdamW, **kwargs):
    """A program on a device, the same each time."""
    torch.manual_seed(0)
    make, data = MODELS[name]
    model = make().to(device)
    learned = [p for p in model.parameters() if p.requires_grad]
    return Program(model, optimizer(learned, lr=1e-2, **kwargs), data(samples).to("cpu"))


def trained(program, split, steps=3):
    """All parameters and buffers after some steps, on the CPU."""
    for _ in range(steps):
        program.step(split(program.batch))
    state = program.model.state_dict()
    return {name: tensor.detach().cpu() for name, tensor in state.items()}
