# SPDX-License-Identifier: Apache-2.0
"""What is trained: language models, a network of convolutions, chains of elementwise ops."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from train_gpt import GPT, Config

WORDS, CONTEXT = 96, 64


def gpt(layers, width, batch):
    """A GPT, and tokens with those that follow."""
    heads = width // 32
    net = GPT(Config(WORDS, layers=layers, width=width, heads=heads, context=CONTEXT, dropout=0.0))
    ids = torch.randint(WORDS, (batch, CONTEXT + 1))
    return net, (ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


class Basic(nn.Module):
    """Source: K. He et al., Deep Residual Learning for Image Recognition, 2015."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.short = nn.Identity()
        if stride > 1 or inside != outside:
            conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(outside))

    def forward(self, x):
        y = self.norm2(self.second(self.norm1(self.first(x)).relu()))
        return (y + self.short(x)).relu()


def resnet18(batch):
    """ResNet-18 with the first layer that images of 32 x 32 pixels are given, and such images."""
    sizes, inside = (64, 128, 256, 512), 64
    layers = [nn.Conv2d(3, inside, 3, 1, 1, bias=False), nn.BatchNorm2d(inside), nn.ReLU()]
    for size in sizes:
        layers += [Basic(inside, size, 1 if size == 64 else 2), Basic(size, size, 1)]
        inside = size
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))
    return net, (torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,)))


class Elementwise(nn.Module):
    """Gates of gates: nothing but elementwise ops, and sums of their gradients."""

    def __init__(self, width, depth):
        super().__init__()
        self.scales = nn.ParameterList(torch.linspace(0.5, 1.5, width) for _ in range(depth))
        self.shifts = nn.ParameterList(torch.linspace(-0.1, 0.1, width) for _ in range(depth))

    def forward(self, x):
        for scale, shift in zip(self.scales, self.shifts, strict=True):
            y = x * scale + shift
            x = x + F.silu(y) * torch.tanh(y) * 0.5 + torch.exp(-y.square()) * 0.1
        return x


def elementwise(batch, width, depth):
    return Elementwise(width, depth), (torch.randn(batch, width), torch.randn(batch, width))


def loss_of(out, expected):
    if expected.is_floating_point():
        return F.mse_loss(out, expected)
    return F.cross_entropy(out.flatten(0, -2), expected.flatten())


NETS = {
    "GPT, 4 layers of 128": lambda: gpt(4, 128, 16),
    "GPT, 6 layers of 384": lambda: gpt(6, 384, 8),
    "ResNet-18": lambda: resnet18(16),
    "elementwise": lambda: elementwise(2048, 256, 8),
    "AdamW alone": lambda: (gpt(6, 384, 1)[0], None),
}
