# SPDX-License-Identifier: Apache-2.0
"""Train a small Llama on text: its weights are cut by one axis of the mesh, the batch by the other.

    python examples/train_llama.py                 # 8 virtual devices: 4 x 2
    python examples/train_llama.py --cpu           # the same numbers in plain PyTorch

RMSNorm, rotary positions, attention with fewer key than query heads, SwiGLU.
"""

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn
from train_gpt import batches, load_text

WIDTH, LAYERS, HEADS, KEY_HEADS, HIDDEN, CONTEXT, BATCH = 64, 2, 8, 4, 176, 32, 16

# What is cut by "model": the first linear of a pair by its outputs, the second by its inputs.
PLAN = {
    "*.[qkv].weight": ("model", None),
    "*.out.weight": (None, "model"),
    "*.gate.weight": ("model", None),
    "*.up.weight": ("model", None),
    "*.down.weight": (None, "model"),
}


def rotate(x, angles):
    """Rotary positions: pairs of x, [batch, heads, places, 2 * pairs], turn by [places, pairs]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        size = WIDTH // HEADS
        self.q, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, KEY_HEADS * size, bias=False) for _ in range(2))

    def forward(self, x, angles):
        q = self.q(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = (f(x).unflatten(-1, (KEY_HEADS, -1)).transpose(1, 2) for f in (self.k, self.v))
        q, k = rotate(q, angles), rotate(k, angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, angles):
        x = x + self.attention(self.norm1(x), angles)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tokens = nn.Embedding(vocab, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocab, bias=False)
        pairs = torch.arange(0, WIDTH // HEADS, 2) * HEADS / WIDTH
        angles = torch.arange(CONTEXT)[:, None] / 10_000**pairs
        self.register_buffer("angles", angles.to(torch.get_default_dtype()), persistent=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.angles[: ids.shape[1]])
        return self.head(self.norm(x))


def train(mesh, steps):
    """The loss of each step on a mesh with axes "data" and "model", or on the CPU (None)."""
    torch.manual_seed(0)
    ids, characters = load_text()
    model = Llama(len(characters))
    data = batches(ids, steps, BATCH, CONTEXT)
    if mesh is not None:
        model.to("spmdx")
        spmdx.nn.shard_module(model, mesh, PLAN)
        rows = spmdx.data.ShardingSpec(mesh, ("data",))
        data = spmdx.data.device_loader(data, input_sharding=rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)

    losses = []
    for x, y in data:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def main():
    options = parse(__doc__, steps=200)
    mesh = None
    if not options.cpu:
        devices = spmdx.runtime.global_runtime_device_count()
        cuts = 2 if devices % 2 == 0 else 1
        mesh = spmdx.Mesh(range(devices), (devices // cuts, cuts), ("data", "model"))
    losses = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
