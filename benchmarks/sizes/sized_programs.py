# SPDX-License-Identifier: Apache-2.0
"""Programs whose sizes change from step to step, on 4 × 2 virtual devices."""

import spmdx
import torch
import torch.nn.functional as F
from routed_experts import Experts
from torch import nn

spmdx.runtime.set_device_count(8)
MESH = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
DEVICE = "spmdx"


def mark(tensor, *spec):
    return spmdx.mark_sharding(tensor, MESH, spec)


class Cache:
    """A decoder of four layers: 24 tokens, each of which finds a cache that is longer by one."""

    def __init__(self, width=64, heads=4, layers=4, rows=4, first=16, tokens=24):
        self.split, self.first, self.tokens = (rows, 1, heads, width // heads), first, tokens
        self.layers = [
            [(torch.randn(width, width) / 8).to(DEVICE) for _ in range(4)] for _ in range(layers)
        ]
        for *inner, out in self.layers:
            for weight in inner:
                mark(weight, None, "model")
            mark(out, "model", None)

    def empty(self):
        rows, _, heads, width = self.split
        cache = torch.zeros(rows, heads, self.first, width).to(DEVICE)
        return mark(cache, "data", "model", None, None)

    def token(self, x, caches):
        for (wq, wk, wv, wo), cache in zip(self.layers, caches, strict=True):
            q, k, v = ((x @ w).view(self.split).transpose(1, 2) for w in (wq, wk, wv))
            cache[0], cache[1] = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            seen = F.scaled_dot_product_attention(q, *cache)
            x = F.layer_norm(x + seen.transpose(1, 2).reshape(x.shape) @ wo, x.shape[-1:])
        spmdx.mark_step()
        return x

    @torch.no_grad()
    def run(self):
        caches = [[self.empty(), self.empty()] for _ in self.layers]
        x = torch.randn(self.split[0], 1, self.layers[0][0].shape[0]).to(DEVICE)
        for _ in range(self.tokens):
            x = self.token(x, caches)


class Trained:
    """Steps of SGD over batches that differ."""

    def __init__(self, model, sharded, loss, batches):
        self.model, self.loss, self.batches = model.to(DEVICE), loss, batches
        for first, last in sharded(self.model):
            mark(first.weight, "model", None)
            mark(last.weight, None, "model")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, momentum=0.9)

    def run(self):
        for batch in self.batches:
            x = mark(batch.to(DEVICE), "data", *[None] * (batch.dim() - 1))
            self.loss(self.model(x)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            spmdx.mark_step()


def routings():
    batches = [torch.randn(64, 32) for _ in range(30)]

    def sharded(model):
        return [(expert[0], expert[2]) for expert in model.experts]

    return Trained(Experts(32, 64, 4), sharded, lambda y: y.pow(2).mean(), batches)


def batches():
    layers = nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)
    rows = [torch.randn(size, 64) for size in range(33, 83)]
    return Trained(
        nn.Sequential(*layers),
        lambda model: [(model[0], model[2])],
        lambda y: y.logsumexp(-1).mean(),
        rows,
    )


PROGRAMS = {"cache": Cache, "routings": routings, "batches": batches}
