# SPDX-License-Identifier: Apache-2.0
"""Teach a language model of English another text by low-rank adapters; its own weights are frozen.

    python examples/train_lora.py                  # 8 virtual devices: 4 x 2
    python examples/train_lora.py --cpu            # the same numbers in plain PyTorch

The frozen weights and the adapters are cut by one axis of the mesh, the batch by the other. The
other text is the source code of Python's argparse. LoRA: arXiv:2106.09685.
"""

import argparse
import inspect

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn
from train_gpt import GPT, Config, batches, load_text

CONTEXT, BATCH, RANK = 32, 16, 4

# Of a pair of linears the first is cut by its outputs, the second by its inputs. An adapter goes
# through few numbers: it is cut where its linear is, by the outputs of b or the inputs of a.
PLAN = {
    "*.[qkv].base.weight": ("model", None),
    "*.[qkv].b": ("model", None),
    "*.out.base.weight": (None, "model"),
    "*.out.a": (None, "model"),
    "*.up.base.weight": ("model", None),
    "*.up.b": ("model", None),
    "*.down.base.weight": (None, "model"),
    "*.down.a": (None, "model"),
}


class LoRA(nn.Module):
    """A frozen linear, and a product of two small matrices beside it, which begins as zero."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)


def add_adapters(model):
    """Freeze the model, and put an adapter beside each linear of its blocks."""
    model.requires_grad_(False)
    for block in model.blocks:
        for part, names in ((block.attention, "q k v out"), (block, "up down")):
            for name in names.split():
                setattr(part, name, LoRA(getattr(part, name)))


def text_to_adapt_to(characters):
    """Token ids of the source of argparse, by the same characters."""
    index = {c: i for i, c in enumerate(characters)}
    return torch.tensor([index[c] for c in inspect.getsource(argparse) if c in index])


def fit(model, data, learning_rate):
    """Train what is not frozen; the loss of each step."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate)
    losses = []
    for x, y in data:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def train(mesh, steps):
    """(losses while the base is made, losses of the adapters, parameters, trainable ones).

    Args:
        mesh: with axes "data" and "model"; None for the CPU.
        steps: how many batches of either text.
    """
    torch.manual_seed(0)
    english, characters = load_text()
    model = GPT(Config(len(characters), 2, 64, 4, CONTEXT, dropout=0.0))
    base_data = batches(english, steps, BATCH, CONTEXT)
    data = batches(text_to_adapt_to(characters), steps, BATCH, CONTEXT)
    if mesh is not None:
        model.to("spmdx")
        rows = spmdx.data.ShardingSpec(mesh, ("data",))
        base_data = spmdx.data.device_loader(base_data, input_sharding=rows)
        data = spmdx.data.device_loader(data, input_sharding=rows)
    base_losses = fit(model, base_data, 3e-3)

    model.cpu()  # as one that was downloaded
    add_adapters(model)
    if mesh is not None:
        model.to("spmdx")
        spmdx.nn.shard_module(model, mesh, PLAN)
    losses = fit(model, data, 1e-2)
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return base_losses, losses, sum(n for n, _ in sizes), sum(n for n, own in sizes if own)


def main():
    options = parse(__doc__, steps=150)
    mesh = None
    if not options.cpu:
        devices = spmdx.runtime.global_runtime_device_count()
        cuts = 2 if devices % 2 == 0 else 1
        mesh = spmdx.Mesh(range(devices), (devices // cuts, cuts), ("data", "model"))
    base, losses, size, trained = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        print(f"English: loss {base[0]:.4f} -> {base[-1]:.4f}, {size - trained:,} parameters")
        print(f"Python: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {trained:,} parameters")


if __name__ == "__main__":
    main()
