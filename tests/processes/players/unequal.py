# SPDX-License-Identifier: Apache-2.0
"""Microbatches of a training step, shared out over processes that are not equally fast.

    unequal.py [SPEED ...]

Processes measure what they can do, or are told to reach so many times the rates of a slow core.
Prints, by process, its part of the work and what that part would be if it were its part of all
speed. Fails unless losses and parameters are those of plain PyTorch within 1e-9.
"""

import json
import sys

import spmdx
import torch
from torch import nn

MICROBATCHES, STEPS = 40, 3  # as many as are shared evenly by all speeds that tests tell


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(96, 192), nn.GELU(), nn.Linear(192, 8)).double()


def train(model, x, targets, end):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        parts = zip(x.chunk(MICROBATCHES), targets.chunk(MICROBATCHES), strict=True)
        loss = sum(nn.functional.mse_loss(model(p), t) for p, t in parts) / MICROBATCHES
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        end()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


def shares():
    """By process: its part of the work of the last step, and its part of all speed."""
    placement = spmdx.explain().placement
    done, speed = [], []
    for at, alone in enumerate(placement.alone_ns):
        busy = sum(s.end_ns - s.start_ns for s in placement.segments if s.coordinate == at)
        done.append(busy / alone)
        speed.append(1 / alone)
    return [[d / sum(done), s / sum(speed)] for d, s in zip(done, speed, strict=True)]


def told(name, speed):
    """A process so many times as fast as a slow core: beside what that does, sends take little."""
    return spmdx.Hardware(
        name=name,
        flops_per_second=dict.fromkeys(("f64", "f32", "bf16", "f16"), 2e10 * speed),
        memory_bytes_per_second=2e10 * speed,
        launch_ns=round(4000 / speed),
    )


def main(speeds):
    devices = spmdx.runtime.measure_devices()
    if speeds:
        devices = [told(f"process {i}", speed) for i, speed in enumerate(speeds)]
    spmdx.runtime.set_devices(devices)
    assert spmdx.runtime.get_devices() == [f"cpu@process {i}" for i in range(len(devices))]
    mesh = spmdx.Mesh(range(len(devices)), (len(devices),), ("kind",))
    spmdx.auto.place(mesh, "kind")
    torch.manual_seed(1)
    x, targets = torch.randn(25600, 96).double(), torch.randn(25600, 8).double()
    plain, placed = net(), net().to("spmdx")
    expected = train(plain, x, targets, lambda: None)
    said = []

    def end():
        spmdx.mark_step()
        said.append(shares())

    batch = [spmdx.mark_sharding(t.to("spmdx"), mesh, (None, None)) for t in (x, targets)]
    found = train(placed, *batch, end)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-9, atol=1e-9)
    for mine, theirs in zip(placed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=1e-9, atol=1e-9)
    print(json.dumps(said[-1]))


if __name__ == "__main__":
    main([float(speed) for speed in sys.argv[1:]])
