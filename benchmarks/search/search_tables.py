# SPDX-License-Identifier: Apache-2.0
"""Nets of tables and vectors that a strategy is searched for: perceptrons, embeddings, factors."""

import torch
import torch.nn.functional as F
from search_net import Net, floats, whole_numbers
from search_transformers import Mlp, scored
from torch import nn


def perceptron(inputs, hidden, layers, outputs):
    sizes = [inputs, *[hidden] * layers]
    pairs = zip(sizes, sizes[1:], strict=False)
    body = [m for a, b in pairs for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*body, nn.Linear(hidden, outputs))


class Around(nn.Module):
    """A layer of a deep net, with a way around it."""

    def __init__(self, width, hidden):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(width), Mlp(width, hidden)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Recommender(nn.Module):
    """Tables for what is said by number, and a perceptron for all (DLRM, arXiv:1906.00091)."""

    def __init__(self, rows, width, dense, hidden):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n in rows)
        self.bottom = nn.Sequential(nn.Linear(dense, hidden), nn.ReLU(), nn.Linear(hidden, width))
        pairs = (len(rows) + 1) ** 2
        self.top = nn.Sequential(nn.Linear(pairs + width, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, numbers, ids):
        x = self.bottom(numbers)
        vectors = [x, *(table(ids[:, i]) for i, table in enumerate(self.tables))]
        z = torch.stack(vectors, 1)
        return self.top(torch.cat((x, (z @ z.transpose(1, 2)).flatten(1)), 1))


class Factors(nn.Module):
    """Users times things, with what each adds by itself."""

    def __init__(self, users, things, width):
        super().__init__()
        self.users, self.things = nn.Embedding(users, width), nn.Embedding(things, width)
        self.of_user, self.of_thing = nn.Embedding(users, 1), nn.Embedding(things, 1)

    def forward(self, user, thing):
        product = (self.users(user) * self.things(thing)).sum(-1)
        return product + (self.of_user(user) + self.of_thing(thing)).squeeze(-1)


class Towers(nn.Module):
    """Two nets whose results are alike for what belongs together (CLIP, arXiv:2103.00020)."""

    def __init__(self, inputs, hidden, width):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.right = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, left, right):
        return F.normalize(self.left(left), dim=-1), F.normalize(self.right(right), dim=-1)


def rated(model, batch):
    user, thing, stars = batch
    return (model(user, thing) - stars).square().mean()


def clicked(model, batch):
    numbers, ids, labels = batch
    return F.cross_entropy(model(numbers, ids), labels)


def matched(model, batch):
    left, right = model(*batch)
    places = torch.arange(left.shape[0], device=left.device)
    return F.cross_entropy(10 * left @ right.t(), places)


def copied(model, x):
    return (model(x) - x).square().mean()


def autoencoder(widths):
    sizes = [*widths, *widths[-2::-1]]
    pairs = list(zip(sizes, sizes[1:], strict=False))
    body = [m for a, b in pairs[:-1] for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*body, nn.Linear(*pairs[-1]))


def clicks(n, tables):
    return floats(n, 64), whole_numbers(n, tables), whole_numbers(n)


def ratings(n):
    return whole_numbers(n), whole_numbers(n), floats(n)


def pairs_of(n):
    return floats(n, 1024), floats(n, 1024)


def deep(width, layers):
    return nn.Sequential(*(Around(width, 2 * width) for _ in range(layers)), nn.Linear(width, 10))


TABLES = {
    "perceptron, wide": scored(lambda: perceptron(1024, 16384, 2, 1000), 1024, samples=256),
    "perceptron, deep": scored(lambda: deep(1024, 12), 1024, samples=512),
    "perceptron, tiny": scored(lambda: perceptron(32, 64, 6, 10), 32, samples=64),
    "one huge layer": scored(lambda: perceptron(256, 512, 1, 2**19), 256, samples=64),
    "autoencoder": Net(
        lambda: autoencoder((8192, 2048, 256)), lambda n: floats(n, 8192), copied, 64
    ),
    "recommender": Net(
        lambda: Recommender([10**6, 2 * 10**5, 4096, 64], 64, 64, 512),
        lambda n: clicks(n, 4),
        clicked,
        2048,
    ),
    "matrix factorisation": Net(lambda: Factors(10**6, 10**5, 128), ratings, rated, 4096),
    "two towers": Net(lambda: Towers(1024, 4096, 512), pairs_of, matched, 256),
}
