# SPDX-License-Identifier: Apache-2.0
"""Train a GAN on heaps of points in a ring: two networks, two optimizers, noise of the device.

    python examples/train_gan.py                   # 8 virtual devices: 4 x 2
    python examples/train_gan.py --cpu             # plain PyTorch

The batch is cut by one axis of the mesh, both networks by the other. Any number of devices draws
the same noise; that of plain PyTorch is another.
"""

import math

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn

HEAPS, SPREAD, NOISE, WIDTH, BATCH = 8, 0.05, 16, 128, 256

PLAN = {"0.weight": ("model", None), "0.bias": ("model",), "2.weight": (None, "model")}


def centers():
    """The middles of the heaps: [heaps, 2]."""
    angles = torch.arange(HEAPS) * 2 * math.pi / HEAPS
    return torch.stack((angles.cos(), angles.sin()), 1).to(torch.get_default_dtype())


def batches(steps):
    """Points of random heaps: [batch, 2]."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        heap = torch.randint(HEAPS, (BATCH,), generator=generator)
        yield centers()[heap] + SPREAD * torch.randn(BATCH, 2, generator=generator)


def network(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, outputs),
    )


def distance(points):
    """How far points are from the nearest middle of a heap, in the mean."""
    return torch.cdist(points, centers()).amin(1).mean().item()


def train(mesh, steps):
    """(losses of the critic, losses of the maker, what it made first, what it made last).

    Args:
        mesh: with axes "data" and "model"; None for the CPU.
        steps: how many batches.
    """
    torch.manual_seed(0)
    device = "cpu" if mesh is None else "spmdx"
    maker, critic = network(NOISE, 2).to(device), network(2, 1).to(device)
    data = batches(steps)
    if mesh is not None:
        spmdx.nn.shard_module(maker, mesh, PLAN)
        spmdx.nn.shard_module(critic, mesh, PLAN)
        rows = spmdx.data.ShardingSpec(mesh, ("data",))
        data = spmdx.data.device_loader(data, input_sharding=rows)
    maker_optimizer = torch.optim.Adam(maker.parameters(), lr=5e-4, betas=(0.5, 0.99))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.5, 0.99))

    first, losses = None, []
    for real in data:
        made = maker(torch.randn(len(real), NOISE, dtype=real.dtype, device=device))
        first = made.detach() if first is None else first
        critic_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()
        critic_loss.backward()
        critic_optimizer.step()
        critic_optimizer.zero_grad()

        maker_loss = F.softplus(-critic(made)).mean()
        maker_loss.backward()
        maker_optimizer.step()
        maker_optimizer.zero_grad()
        critic_optimizer.zero_grad()  # what the maker's loss left there
        spmdx.mark_step()
        losses.append((critic_loss.detach(), maker_loss.detach()))
    losses = [(of_critic.item(), of_maker.item()) for of_critic, of_maker in losses]
    return *zip(*losses, strict=True), first.cpu(), made.detach().cpu()


def main():
    options = parse(__doc__, steps=1000)
    mesh = None
    if not options.cpu:
        devices = spmdx.runtime.global_runtime_device_count()
        cuts = 2 if devices % 2 == 0 else 1
        mesh = spmdx.Mesh(range(devices), (devices // cuts, cuts), ("data", "model"))
    _, _, first, last = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        heaps = torch.cdist(last, centers()).argmin(1).unique().numel()
        print(f"distance from the nearest heap {distance(first):.3f} -> {distance(last):.3f}")
        print(f"heaps reached: {heaps} of {HEAPS}")


if __name__ == "__main__":
    main()
