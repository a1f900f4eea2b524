# SPDX-License-Identifier: Apache-2.0
"""The copies and the in-place writes of random programs, by name."""

import copy

import torch


def _format(t):
    return torch.channels_last if t.dim() == 4 else torch.contiguous_format


COPIES = {
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "format": lambda x: x.contiguous(memory_format=_format(x)),
    "dense": lambda x: x.clone(memory_format=torch.contiguous_format),
    "flip": lambda x: x.flip(0) if x.dim() else x.clone(),
    "like": lambda x: torch.empty_like(x).copy_(x),
    "shallow": copy.copy,
    "resolved": lambda x: x.resolve_conj(),
    "positive": lambda x: x.resolve_neg(),
}


def numbers(x):
    return torch.arange(x.numel(), device=x.device).view(x.shape).to(x.dtype)


def _two_indices(x):
    """Those of the first and the last element of the first two dims."""
    ends = torch.tensor([0, -1], device=x.device)
    return (ends, ends) if x.dim() > 1 else (ends,)


FILLS = {
    "fill": lambda x, c: x.fill_(c),
    "zero": lambda x, c: x.zero_(),
}
WRITES = {
    "add": lambda x, c: x.add_(c),
    "mul": lambda x, c: x.mul_(c),
    "neg": lambda x, c: x.neg_(),
    "full": lambda x, c: x.copy_(torch.full_like(x, c)),
    "copy": lambda x, c: x.copy_(numbers(x)),
    "clamp": lambda x, c: x.clamp_(-abs(c), abs(c)),
    "masked": lambda x, c: x.masked_fill_(numbers(x).real > 2, c),
    "out": lambda x, c: torch.add(x, c, out=x),
    "addcmul": lambda x, c: x.addcmul_(x, x, value=c),
    "where": lambda x, c: x.copy_(torch.where(x == c, x, x + c)),
    "cumsum": lambda x, c: x.cumsum_(0) if x.dim() else x,
    "index": lambda x, c: x.index_fill_(0, torch.zeros(1, dtype=torch.long, device=x.device), c),
    "end": lambda x, c: x.index_fill_(-1, torch.full((1,), -1, device=x.device), c),
    "two": lambda x, c: x.__setitem__(_two_indices(x), c),
    "diagonal": lambda x, c: x.fill_diagonal_(c),
    "beside": lambda x, c: x[: len(x) // 2].copy_(x[len(x) - len(x) // 2 :]),
    "set": lambda x, c: x.__setitem__(..., c),
}
PAIRS = {
    "add": lambda x, y: x.add_(y),
    "mul": lambda x, y: x.mul_(y),
    "copy": lambda x, y: x.copy_(y),
    "out": lambda x, y: torch.add(y, 1, out=x),
    "lerp": lambda x, y: x.addcmul_(y, y),
}
