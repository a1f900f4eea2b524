# SPDX-License-Identifier: Apache-2.0
"""Six models of different kinds, each with a step that takes a CPU core 0.1 to 1 second."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path[:0] = map(str, (Path(__file__).parents[1], Path(__file__).parents[2] / "examples"))
import llama  # noqa: E402
import nanogpt  # noqa: E402
from train_resnet import Block as ResidualBlock  # noqa: E402

CLASSES = 10


class Mlp(nn.Module):
    """Pairs of wide layers: parameters outweigh activations."""

    def __init__(self, width=512, hidden=2048, pairs=3):
        super().__init__()
        shapes = [(width, hidden) for _ in range(pairs)]
        self.ups = nn.ModuleList(nn.Linear(*shape) for shape in shapes)
        self.downs = nn.ModuleList(nn.Linear(*shape[::-1]) for shape in shapes)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        for up, down in zip(self.ups, self.downs, strict=True):
            x = x + down(up(x).relu())
        return self.head(x)


class Experts(nn.Module):
    """Each token goes to its best expert, as far as that has room: products with a mask.

    Source: GShard, arXiv:2006.16668.
    """

    def __init__(self, width, hidden, count, capacity):
        super().__init__()
        self.capacity = capacity
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, hidden, width) / hidden**0.5)

    def forward(self, x):
        share = self.router(x).softmax(-1)  # [batch, places, experts]
        weight, expert = share.max(-1)
        chosen = F.one_hot(expert, share.shape[-1])
        place = (chosen.cumsum(1) - 1).mul(chosen).sum(-1).clamp(max=self.capacity)
        queue = F.one_hot(place, self.capacity + 1)[..., : self.capacity]
        mask = torch.einsum("bte,btc->btec", chosen.to(x.dtype), queue.to(x.dtype))
        sent = torch.einsum("btec,btw->ebcw", mask, x)
        hidden = F.gelu(torch.einsum("ebcw,ewh->ebch", sent, self.up))
        made = torch.einsum("ebch,ehw->ebcw", hidden, self.down)
        return torch.einsum("btec,ebcw->btw", mask * weight[..., None, None], made)


class MixtureOfExperts(nn.Module):
    def __init__(self, vocab, context, width=192, hidden=768, experts=8, layers=3):
        super().__init__()
        config = nanogpt.Config(1, width, 4, context, fused=False)
        self.tokens = nn.Embedding(vocab, width)
        self.mixers = nn.ModuleList(nanogpt.Attention(config) for _ in range(layers))
        self.experts = nn.ModuleList(
            Experts(width, hidden, experts, context // 4) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for i, (mixer, experts) in enumerate(zip(self.mixers, self.experts, strict=True)):
            x = x + mixer(self.norms[2 * i](x))
            x = x + experts(self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x))


def resnet(widths=(24, 48, 96)):
    """Images become smaller and get more channels; batch norm sees the whole batch."""
    first = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0])]
    pairs = list(zip((widths[0], *widths), widths, strict=False))
    blocks = [ResidualBlock(a, b, 1 if a == b else 2) for a, b in pairs]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES)]
    return nn.Sequential(*first, nn.ReLU(), *blocks, *last)


class Recommender(nn.Module):
    """Large tables of embeddings, of which a sample reads a row each, and a small network."""

    def __init__(self, tables=8, rows=16384, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.mix = nn.Sequential(nn.Linear(tables * width, 1024), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, CLASSES))

    def forward(self, ids):
        found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        return self.head(self.mix(torch.cat(found, -1)))


# --- programs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """How a model is made, and its batch: inputs and the classes to be learned."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[torch.Tensor, torch.Tensor]]


def tokens(vocab, samples, context):
    return tuple(torch.randint(vocab, (2, samples, context)).unbind(0))


def classified(x):
    return x, torch.randint(CLASSES, x.shape[:1])


GPT = nanogpt.Config(layers=4, width=256, heads=4, context=64, vocab=256, fused=False)
LLAMA = llama.Config(4, 256, 8, 4, 704, 1024, 64)
KINDS = {
    "gpt": Kind(lambda: nanogpt.GPT(GPT), lambda: tokens(256, 16, 64)),
    "llama": Kind(lambda: llama.Llama(LLAMA), lambda: tokens(1024, 16, 64)),
    "mlp": Kind(Mlp, lambda: classified(torch.randn(512, 512))),
    "experts": Kind(lambda: MixtureOfExperts(256, 64), lambda: tokens(256, 32, 64)),
    "resnet": Kind(resnet, lambda: classified(torch.randn(64, 3, 32, 32))),
    "recommender": Kind(Recommender, lambda: classified(torch.randint(16384, (2048, 8)))),
}


class Program:
    """A model, its optimizer, and a step of a list of microbatches; the same each time."""

    def __init__(self, name, device="spmdx"):
        torch.manual_seed(0)
        kind = KINDS[name]
        self.model = kind.model().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.batch = kind.batch()

    def step(self, batches):
        """The mean loss of the microbatches."""
        total = 0.0
        for x, y in batches:
            scores = self.model(x).flatten(0, -2)
            loss = F.cross_entropy(scores, y.flatten()) / len(batches)
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total
