# SPDX-License-Identifier: Apache-2.0
"""Nets of images that a strategy is searched for: residual, U-shaped, with patches, separable."""

import torch
import torch.nn.functional as F
from search_net import Net, floats
from search_transformers import gpt_blocks, scored
from torch import nn


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs, outputs, stride=1, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = norm(outputs), norm(outputs)
        self.around = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        h = self.norm1(self.conv1(x)).relu()
        return (self.norm2(self.conv2(h)) + self.around(x)).relu()


def grouped(channels):
    return nn.GroupNorm(8, channels)


def resnet(widths, depth, norm=nn.BatchNorm2d, classes=100):
    """A stem, for each width so many blocks, of which the first halves rows and columns, a head."""
    blocks, inputs = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False)], widths[0]
    for width in widths:
        for i in range(depth):
            blocks.append(Residual(inputs, width, 1 if i else 2, norm))
            inputs = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*blocks, *head)


def vgg(widths, hidden, size, classes=1000):
    """Convolutions and pools, and a head of two large matrices (arXiv:1409.1556)."""
    layers, inputs = [], 3
    for width in widths:
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs, size = width, size // 2
    flat = inputs * size * size
    head = [nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, classes)]
    return nn.Sequential(*layers, *head)


class Separable(nn.Module):
    """A convolution of each channel alone, then products over channels (arXiv:2201.03545)."""

    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.up, self.down = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(self.depthwise(x)))))


def separable(width, depth, classes=100):
    blocks = [nn.Conv2d(3, width, 4, 4), *(Separable(width) for _ in range(depth))]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class UNet(nn.Module):
    """Down and up again, with ways across (arXiv:1505.04597)."""

    def __init__(self, widths):
        super().__init__()
        pairs = list(zip([3, *widths[:-1]], widths, strict=True))
        self.down = nn.ModuleList(Residual(a, b, norm=grouped) for a, b in pairs)
        backwards = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.wider = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in backwards)
        self.up = nn.ModuleList(Residual(2 * b, b, norm=grouped) for _, b in backwards)
        self.last = nn.Conv2d(widths[0], 3, 1)

    def forward(self, x):
        across = []
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if across else x)
            across.append(x)
        for wider, block, kept in zip(self.wider, self.up, across[-2::-1], strict=True):
            x = block(torch.cat((wider(x), kept), 1))
        return self.last(x)


class Patches(nn.Module):
    """A vision transformer (arXiv:2010.11929)."""

    def __init__(self, width, layers, patch, places, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.empty(places, width))
        self.blocks = nn.ModuleList(gpt_blocks(layers, width, width // 64, causal=False))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def noise(model, x):
    return (model(x) - x).square().mean()


def denoised(make, size, samples=16):
    return Net(make, lambda n: floats(n, 3, size, size), noise, samples)


IMAGES = {
    "resnet": scored(lambda: resnet((64, 128), 2), 3, 64, 64, samples=32),
    "resnet, group norms": scored(lambda: resnet((256, 512), 2, grouped), 3, 32, 32),
    "vgg": scored(lambda: vgg((64, 128, 256), 4096, 64), 3, 64, 64, samples=32),
    "separable convolutions": scored(lambda: separable(256, 4), 3, 128, 128),
    "u-net": denoised(lambda: UNet((64, 128, 256)), 64),
    "u-net, wide": denoised(lambda: UNet((512, 1024)), 32, 8),
    "vision transformer": scored(lambda: Patches(768, 3, 16, 196), 3, 224, 224),
}
