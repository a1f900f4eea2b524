# SPDX-License-Identifier: Apache-2.0
"""A step of six microbatches that are alike, planned and run: planned_loop.py STAGES DATA WAY."""

import sys

import spmdx
import torch
from torch import nn

BLOCKS, ROWS, MICROBATCHES = 8, 48, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


def in_slices(x, m):
    rows = len(x) // m
    return (x[i * rows : (i + 1) * rows] for i in range(m))


WAYS = {"chunks": lambda x, m: x.chunk(m), "slices": in_slices}


def main(stages, data, way):
    spmdx.runtime.set_device_count(stages * data)
    mesh = spmdx.Mesh(range(stages * data), (stages, data), ("pipe", "data"))
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS))).to("spmdx")
    spmdx.nn.pipeline(model, mesh, cuts=[str(s * BLOCKS // stages) for s in range(1, stages)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = spmdx.mark_sharding(torch.randn(ROWS, 8).to("spmdx"), mesh, ("data", None))
    losses = []
    for part in WAYS[way](x, MICROBATCHES):
        loss = model(part).square().mean() / MICROBATCHES
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    print(torch.stack(losses).sum().item())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
