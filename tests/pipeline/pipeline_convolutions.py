# SPDX-License-Identifier: Apache-2.0
"""Tiny convolutional nets in plain PyTorch without statistics over the batch."""

import torch
import torch.nn.functional as F
from torch import nn

IMAGE = (3, 8, 8)


class Twice(nn.Module):
    """Two convolutions with group norms."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs)

    def forward(self, x):
        return F.silu(self.norm2(self.conv2(F.silu(self.norm1(self.conv1(x))))))


class UNet(nn.Module):
    """What goes down is read again on the way up: skips over one stage and over several."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = Twice(3, 4), Twice(4, 8)
        self.middle = Twice(8, 8)
        self.up2, self.up1 = Twice(16, 4), Twice(8, 4)
        self.head = nn.Conv2d(4, 3, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.avg_pool2d(first, 2))
        y = F.interpolate(self.middle(F.avg_pool2d(second, 2)), scale_factor=2.0)
        y = F.interpolate(self.up2(torch.cat((y, second), 1)), scale_factor=2.0)
        return self.head(self.up1(torch.cat((y, first), 1)))


class FrozenNorm(nn.Module):
    """A batch norm whose statistics are fixed: buffers, as of a net that is fine-tuned."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(channels)) for _ in range(2))
        self.register_buffer("mean", torch.randn(channels) / 4)
        self.register_buffer("variance", 1 + torch.rand(channels))

    def forward(self, x):
        return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = FrozenNorm(outputs), FrozenNorm(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        sizes = ((4, 4, 1), (4, 8, 2), (8, 8, 1), (8, 8, 2))
        self.blocks = nn.ModuleList(Residual(*size) for size in sizes)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
