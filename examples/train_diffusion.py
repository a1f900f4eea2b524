# SPDX-License-Identifier: Apache-2.0
"""Train a diffusion U-Net on digits, and let it draw some; times and noise come from the device.

    python examples/train_diffusion.py             # 8 virtual devices
    python examples/train_diffusion.py --cpu       # plain PyTorch

Random numbers belong to elements of the whole tensor, so any number of devices draws the same.
Those of plain PyTorch are others: two such runs are alike, but not equal.
"""

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn
from train_vit import batches, load

WIDTH, TIMES = 32, 100
BETAS = torch.linspace(1e-3, 0.1, TIMES, dtype=torch.float64)


class Block(nn.Module):
    """Two convolutions and a way around them; the time shifts what is between."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(4 * WIDTH, outputs)
        self.around = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.around(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    """Images of 8 x 8 go down to 2 x 2 and up again, past what they were on the way down."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(
            nn.Embedding(TIMES, 4 * WIDTH), nn.Linear(4 * WIDTH, 4 * WIDTH), nn.SiLU()
        )
        self.first, self.last = nn.Conv2d(1, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 1, 3, padding=1)
        self.down1, self.down2 = Block(WIDTH, WIDTH), Block(WIDTH, 2 * WIDTH)
        self.middle = Block(2 * WIDTH, 2 * WIDTH)
        self.up2, self.up1 = Block(4 * WIDTH, WIDTH), Block(2 * WIDTH, WIDTH)

    def forward(self, x, t):
        time = self.time(t)
        a = self.down1(self.first(x), time)
        b = self.down2(F.avg_pool2d(a, 2), time)
        h = self.middle(F.avg_pool2d(b, 2), time)
        h = self.up2(torch.cat((F.interpolate(h, scale_factor=2), b), 1), time)
        h = self.up1(torch.cat((F.interpolate(h, scale_factor=2), a), 1), time)
        return self.last(h)


def train(mesh, steps):
    """(the U-Net, the loss of each step).

    Args:
        mesh: with an axis "data"; None for the CPU.
        steps: how many batches.
    """
    torch.manual_seed(0)
    model = UNet()
    data = batches(load()[0], steps)
    if mesh is not None:
        model.to("spmdx")
        rows = spmdx.data.ShardingSpec(mesh, ("data",))
        data = spmdx.data.device_loader(data, input_sharding=rows)
    kept = (1 - BETAS).cumprod(0).to(model.first.weight)  # of the image, after each time
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    losses = []
    for x, _ in data:
        t = torch.randint(TIMES, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        share = kept[t][:, None, None, None]
        loss = F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        losses.append(loss.detach())
    return model, [loss.item() for loss in losses]


@torch.no_grad()
def draw(model, count, mesh):
    """`count` new images, [count, 1, 8, 8], from noise, back through all times."""
    weight = model.first.weight
    x = torch.randn(count, 1, 8, 8, dtype=weight.dtype, device=weight.device)
    if mesh is not None:
        spmdx.mark_sharding(x, mesh, ("data", None, None, None))
    kept = (1 - BETAS).cumprod(0)
    for time in reversed(range(TIMES)):
        t = torch.full((count,), time, device=x.device)
        beta, share = BETAS[time].item(), kept[time].item()
        x = (x - beta / (1 - share) ** 0.5 * model(x, t)) / (1 - beta) ** 0.5
        if time > 0:
            x = x + beta**0.5 * torch.randn_like(x)
        spmdx.mark_step()
    return x.cpu()


def show(images):
    """Images as text, side by side."""
    for row in torch.cat(list(images[:, 0]), -1):
        print("".join(" .:*#"[int((value.item() + 1) * 2.49)] for value in row.clamp(-1, 1)))


def main():
    options = parse(__doc__, steps=300)
    mesh = None if options.cpu else spmdx.get_1d_mesh("data")
    model, losses = train(mesh, options.steps)
    images = draw(model, 8, mesh)
    if spmdx.runtime.process_index() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
        show(images)


if __name__ == "__main__":
    main()
