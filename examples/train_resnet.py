# SPDX-License-Identifier: Apache-2.0
"""Train a ResNet on digits: one axis of the mesh cuts the batch, another the rows of images.

    python examples/train_resnet.py                # 8 virtual devices: 4 x 2
    python examples/train_resnet.py --cpu          # the same numbers in plain PyTorch

Convolutions fetch the rows they need from the neighbours. Batch norm takes its statistics over the
whole batch, as it does on one device.
"""

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn
from train_vit import batches, load

WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.around = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.around = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        h = self.norm1(self.conv1(x)).relu()
        return (self.norm2(self.conv2(h)) + self.around(x)).relu()


def resnet(classes=10):
    return nn.Sequential(
        nn.Conv2d(1, WIDTHS[0], 3, padding=1, bias=False),
        nn.BatchNorm2d(WIDTHS[0]),
        nn.ReLU(),
        Block(WIDTHS[0], WIDTHS[0], 1),
        Block(WIDTHS[0], WIDTHS[1], 2),
        Block(WIDTHS[1], WIDTHS[2], 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(WIDTHS[2], classes),
    )


def by_rows(x, mesh):
    """Keep an activation, [batch, channels, rows, columns], and its gradient cut both ways."""
    return spmdx.mark_sharding_with_gradients(x, mesh, ("data", None, "rows", None))


def train(mesh, steps):
    """(the loss of each step, the share of unseen digits that are read rightly).

    Args:
        mesh: with axes "data" and "rows"; None for the CPU.
        steps: how many batches.
    """
    torch.manual_seed(0)
    model = resnet()
    known, unseen = load()
    data = batches(known, steps)
    if mesh is not None:
        model.to("spmdx")
        for module in model[:6]:  # else the planner cuts such small images by the batch alone
            module.register_forward_hook(lambda _, inputs, output: by_rows(output, mesh))
        images = spmdx.data.ShardingSpec(mesh, ("data", None, "rows"))
        classes = spmdx.data.ShardingSpec(mesh, ("data",))
        data = spmdx.data.device_loader(data, input_sharding={0: images, 1: classes})
        (unseen,) = spmdx.data.device_loader([unseen], input_sharding={0: images, 1: classes})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    losses = []
    for x, y in data:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        spmdx.mark_step()
        losses.append(loss.detach())

    model.eval()
    with torch.no_grad():
        right = (model(unseen[0]).argmax(-1) == unseen[1]).double().mean()
    return [loss.item() for loss in losses], right.item()


def main():
    options = parse(__doc__, steps=100)
    mesh = None
    if not options.cpu:
        devices = spmdx.runtime.global_runtime_device_count()
        cuts = 2 if devices % 2 == 0 else 1
        mesh = spmdx.Mesh(range(devices), (devices // cuts, cuts), ("data", "rows"))
    losses, right = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {right:.1%} of unseen digits right")


if __name__ == "__main__":
    main()
