# SPDX-License-Identifier: Apache-2.0
"""Train a transformer with a mixture of experts: each device holds some experts and some tokens.

    python examples/train_moe.py                   # 8 virtual devices
    python examples/train_moe.py --cpu             # the same numbers in plain PyTorch

Tokens go to their two best experts and back through two products with a mask, as in GShard
(arXiv:2006.16668). One axis cuts the batch and the experts, so the products become all_to_alls.
"""

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn
from train_gpt import batches, load_text

WIDTH, LAYERS, HEADS, EXPERTS, HIDDEN, CONTEXT, BATCH = 64, 2, 4, 8, 128, 32, 16
CHOICES, CAPACITY = 2, 12  # experts of a token, tokens of a row that an expert takes


class Experts(nn.Module):
    """Two choices of experts for each token; a token that finds its expert full passes by."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) / HIDDEN**0.5)

    def forward(self, x):
        """x: [batch, places, width]; the same shape, and the loss that balances the experts."""
        share = self.router(x).softmax(-1)
        weight, expert = share.topk(CHOICES, -1)
        chosen = F.one_hot(expert, EXPERTS).flatten(1, 2)  # [batch, places * choices, experts]
        place = (chosen.cumsum(1) - 1).mul(chosen).sum(-1)  # in the queue of its expert
        queue = F.one_hot(place.clamp(max=CAPACITY), CAPACITY + 1)[..., :CAPACITY]
        mask = torch.einsum("bte,btc->btec", chosen.to(x.dtype), queue.to(x.dtype))
        mask = mask.unflatten(1, (-1, CHOICES))
        combine = (mask * weight[..., None, None]).sum(2)

        sent = torch.einsum("bsec,bsw->ebcw", mask.sum(2), x)
        hidden = F.gelu(torch.einsum("ebcw,ewh->ebch", sent, self.up))
        made = torch.einsum("ebch,ehw->ebcw", hidden, self.down)
        balance = (chosen.to(x.dtype).mean((0, 1)) * share.mean((0, 1))).sum() * EXPERTS
        return torch.einsum("bsec,ebcw->bsw", combine, made), balance


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.experts = Experts()

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y, balance = self.experts(self.norm2(x))
        return x + y, balance


class Model(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocab)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        balance = 0
        for block in self.blocks:
            x, more = block(x)
            balance = balance + more
        return self.head(self.norm(x)), balance


def train(mesh, steps):
    """The loss of each step on a mesh with an axis "expert", or on the CPU (None)."""
    torch.manual_seed(0)
    ids, characters = load_text()
    model = Model(len(characters))
    data = batches(ids, steps, BATCH, CONTEXT)
    if mesh is not None:
        model.to("spmdx")
        plan = {f"*.experts.{name}": ("expert", None, None) for name in ("up", "down")}
        spmdx.nn.shard_module(model, mesh, plan)
        rows = spmdx.data.ShardingSpec(mesh, ("expert",))
        data = spmdx.data.device_loader(data, input_sharding=rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    losses = []
    for x, y in data:
        logits, balance = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        (loss + 0.01 * balance).backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def main():
    options = parse(__doc__, steps=200)
    mesh = None if options.cpu else spmdx.get_1d_mesh("expert")
    losses = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
