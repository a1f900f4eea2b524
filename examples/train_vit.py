# SPDX-License-Identifier: Apache-2.0
"""Train a vision transformer on digits, fully sharded: parameters, gradients, optimizer, batch.

python examples/train_vit.py                   # 8 virtual devices
python examples/train_vit.py --cpu             # the same numbers in plain PyTorch
"""

import itertools

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, LAYERS, HEADS, PATCH, BATCH = 64, 3, 4, 2, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches of an image as words, and one word more, from which the class is read."""

    def __init__(self, size=8, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // PATCH) ** 2 + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


def load():
    """(images, classes) of 1,500 digits to learn from and of 297 others."""
    images, classes = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.get_default_dtype()).view(-1, 1, 8, 8) / 8 - 1
    classes = torch.tensor(classes)
    return (images[:1500], classes[:1500]), (images[1500:], classes[1500:])


def batches(data, steps):
    """Shuffled batches, epoch after epoch."""
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(*data), BATCH, shuffle=True, generator=order, drop_last=True)
    while steps > 0:
        yield from itertools.islice(loader, steps)
        steps -= len(loader)


def train(mesh, steps):
    """(the loss of each step, the share of unseen digits that are read rightly).

    Args:
        mesh: with an axis "fsdp"; None for the CPU.
        steps: how many batches.
    """
    torch.manual_seed(0)
    model = ViT()
    known, unseen = load()
    data = batches(known, steps)
    if mesh is not None:
        model.to("spmdx")
        spmdx.fully_shard(model, mesh, axis="fsdp")
        rows = spmdx.data.ShardingSpec(mesh, ("fsdp",))
        data = spmdx.data.device_loader(data, input_sharding=rows)
        (unseen,) = spmdx.data.device_loader([unseen], input_sharding=rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)

    losses = []
    for x, y in data:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        losses.append(loss.detach())

    model.eval()
    with torch.no_grad():
        right = (model(unseen[0]).argmax(-1) == unseen[1]).double().mean()
    return [loss.item() for loss in losses], right.item()


def main():
    options = parse(__doc__, steps=250)
    mesh = None if options.cpu else spmdx.get_1d_mesh("fsdp")
    losses, right = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {right:.1%} of unseen digits right")


if __name__ == "__main__":
    main()
