# SPDX-License-Identifier: Apache-2.0
"""The ops of random programs: each takes a random.Random and the values so far, returns new values.

None means that the op found no fitting operand. Choices depend on shapes only, never on values.
"""

import torch
import torch.nn.functional as F


def some_dim(rng, x):
    return rng.randrange(x.dim())


def unary(rng, values):
    f = rng.choice(
        [
            torch.tanh,
            torch.sigmoid,
            torch.relu,
            torch.neg,
            torch.abs,
            torch.sin,
            F.gelu,
            F.silu,
            lambda x: x.tanh().exp(),
            lambda x: x * 1.5 + 0.25,
            lambda x: 1.0 / (x * x + 1.0),
            lambda x: (x * x + 0.5).sqrt(),
        ]
    )
    return [f(rng.choice(values))]


def binary(rng, values):
    x, y = rng.choice(values), rng.choice(values)
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        y = x.flip(0) if x.dim() else x * 0.5
    f = rng.choice(
        [
            torch.add,
            torch.sub,
            torch.mul,
            torch.maximum,
            torch.minimum,
            lambda a, b: a / (b * b + 1.0),
            lambda a, b: torch.where(a > b, a, b * 2.0),
        ]
    )
    return [f(x, y)]


def matmul(rng, values):
    x = rng.choice(values)
    if x.dim() < 2:
        return [torch.outer(x, x)] if x.dim() == 1 else None
    partners = [y for y in values if y.dim() == 2 and y.shape[0] == x.shape[-1]]
    y = rng.choice(partners) if partners and rng.random() < 0.7 else x.transpose(-1, -2)
    return [x @ y * 0.3]


def linear(rng, values):
    x = rng.choice(values)
    weights = [w for w in values if w.dim() == 2 and x.dim() and w.shape[1] == x.shape[-1]]
    if not weights:
        return None
    w = rng.choice(weights)
    biases = [b for b in values if b.shape == w.shape[:1]]
    return [F.linear(x, w, rng.choice(biases) if biases else None) * 0.3]


def movement(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return [x.unsqueeze(0).expand(3)]
    dim = some_dim(rng, x)
    order = rng.sample(range(x.dim()), x.dim())
    size = x.shape[dim]
    part = next((p for p in (2, 3, 5) if size % p == 0), 1)
    merge = min(dim, x.dim() - 2)
    choices = [
        lambda: x.permute(order),
        lambda: x.transpose(dim, -1),
        lambda: x.reshape(-1),
        lambda: x.unflatten(dim, (part, size // part)),
        lambda: x.unflatten(dim, (-1, part)),
        lambda: x.unsqueeze(dim),
        lambda: x.unsqueeze(dim).expand(*x.shape[:dim], 2, *x.shape[dim:]),
        lambda: x.flip(dim),
    ]
    if x.dim() >= 2:
        choices += [lambda: x.flatten(merge, merge + 1), lambda: x.mT.reshape(-1, x.shape[0])]
    return [rng.choice(choices)()]


def reduction(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dims, keep = rng.sample(range(x.dim()), rng.randint(1, x.dim())), rng.random() < 0.5
    choices = [x.sum, x.mean, x.logsumexp, x.amax, x.amin]
    if torch.Size([x.shape[d] for d in dims]).numel() > 1:
        choices.append(x.var)
    return [rng.choice(choices)(dims, keepdim=keep)]


def along_a_dim(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dim = some_dim(rng, x)
    choices = [
        lambda: x.softmax(dim),
        lambda: x.log_softmax(dim),
        lambda: x.cumsum(dim) * 0.5,
        lambda: F.layer_norm(x, x.shape[-1:]),
        lambda: x.max(dim).values,
        lambda: x.sort(dim).values,
        lambda: x.topk(max(1, x.shape[dim] // 2), dim).values,
    ]
    return [rng.choice(choices)()]


def cut(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dim = some_dim(rng, x)
    size = x.shape[dim]
    start = rng.randrange(size)
    end, step = rng.randint(start + 1, size), rng.choice([1, 1, 2])
    index = torch.tensor([rng.randrange(size) for _ in range(rng.randint(1, 5))]).to(x.device)
    slices = (slice(None),) * dim + (slice(start, end, step),)
    choices = [
        lambda: [x[slices]],
        lambda: [x.select(dim, start)],
        lambda: list(x.chunk(2, dim)),
        lambda: list(x.split(max(1, size - 1), dim)),
        lambda: [x.index_select(dim, index)],
        lambda: [x.narrow(dim, start, end - start)],
    ]
    return rng.choice(choices)()


def join(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dim = some_dim(rng, x)
    fit = [
        y
        for y in values
        if y.dim() == x.dim()
        and all(a == b for d, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if d != dim)
    ]
    same = [y for y in values if y.shape == x.shape]
    padding = [0, 0] * (x.dim() - 1 - dim) + [1, 2]
    choices = [
        lambda: torch.cat([x, rng.choice(fit)], dim),
        lambda: torch.stack([x, rng.choice(same)], dim),
        lambda: F.pad(x, padding),
        lambda: torch.cat([x, x * 2.0, x], dim),
    ]
    return [rng.choice(choices)()]


def mutation(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    y, dim = x.clone(), some_dim(rng, x)
    view = y.narrow(dim, rng.randrange(y.shape[dim]), 1)
    rng.choice(
        [
            lambda: y.mul_(1.5),
            lambda: view.mul_(2.0),
            lambda: view.zero_(),
            lambda: y.transpose(0, -1).add_(0.5),
            lambda: y.select(dim, 0).copy_(y.select(dim, -1) * 3.0),
        ]
    )()
    return [y]


OPS = (
    unary,
    unary,
    binary,
    binary,
    matmul,
    linear,
    movement,
    movement,
    reduction,
    along_a_dim,
    cut,
    join,
    mutation,
)
