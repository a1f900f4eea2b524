# SPDX-License-Identifier: Apache-2.0
"""The views of random programs: from a tensor of the CPU to a function of it, or None."""

import random

import torch


class Draws(random.Random):
    """What a program draws. Programs of one seed that are moved differ in places alone."""

    def __init__(self, seed, moved):
        super().__init__(seed)
        self._places = random.Random(f"{seed} {moved}")

    def place(self, count):
        """One of `count` places."""
        return self._places.randrange(count)


def _dim(rng, t):
    return rng.randrange(t.dim()) if t.dim() else None


def _slice(rng, t):
    d = _dim(rng, t)
    if d is None:
        return None
    length = rng.randint(0, t.size(d))
    start, step = rng.place(t.size(d) - length + 1), rng.randint(1, 2)
    stop = start + length
    return lambda x: x[(slice(None),) * d + (slice(start, stop, step),)]


def _select(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) == 0:
        return None
    index = rng.place(t.size(d)) - rng.choice([0, t.size(d)])
    return lambda x: x.select(d, index)


def _transpose(rng, t):
    if t.dim() < 2:
        return None
    a, b = rng.sample(range(t.dim()), 2)
    return lambda x: x.transpose(a, b)


def _permute(rng, t):
    order = rng.sample(range(t.dim()), t.dim())
    return lambda x: x.permute(order)


def _flatten(rng, t):
    return (lambda x: x.view(-1)) if t.is_contiguous() else None


def _split_dim(rng, t):
    if not t.is_contiguous():
        return None
    for d in range(t.dim()):
        if t.size(d) > 2 and t.size(d) % 2 == 0:
            sizes = [*t.shape[:d], 2, t.size(d) // 2, *t.shape[d + 1 :]]
            return lambda x: x.view(sizes)
    return None


def _unsqueeze(rng, t):
    d = rng.randint(0, t.dim())
    return (lambda x: x.unsqueeze(d)) if t.dim() < 5 else None


def _squeeze(rng, t):
    return lambda x: x.squeeze()


def _expand(rng, t):
    if t.dim() > 3:
        return None
    return lambda x: x.unsqueeze(0).expand(2, *x.shape)


def _diagonal(rng, t):
    if t.dim() < 2:
        return None
    a, b = rng.sample(range(t.dim()), 2)
    offset = rng.choice([0, 0, 0, -2, -1, 1, 2])
    return lambda x: x.diagonal(offset, a, b)


def _roll(rng, t):
    """No view, but a copy whose rows lie elsewhere, by a place."""
    d = _dim(rng, t)
    if d is None:
        return None
    by = rng.place(2 * t.size(d) + 1) - t.size(d)
    return lambda x: x.roll(by, d)


def _chunk(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) < 2:
        return None
    return lambda x: x.chunk(2, d)[1]


def _unbind(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) < 2:
        return None
    return lambda x: x.unbind(d)[-1]


def _unfold(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) < 2 or t.dim() > 3:
        return None
    size, step = rng.randint(1, min(3, t.size(d))), rng.randint(1, 2)
    return lambda x: x.unfold(d, size, step)


def was_loaded(t):
    """What lies beside the tensor in its storage is loaded in eager alone."""
    return not t.untyped_storage().resizable()


def _as_strided(rng, t):
    if was_loaded(t):
        return None
    room = t.untyped_storage().nbytes() // t.element_size()
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    strides = [rng.randint(0, 4) for _ in sizes]
    reach = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if reach >= room:
        return None
    offset = rng.place(room - reach)
    return lambda x: x.as_strided(sizes, strides, offset)


def _real(rng, t):
    return torch.view_as_real if t.is_complex() else None


def _conj(rng, t):
    return torch.conj if t.is_complex() else None


def _imag(rng, t):
    return torch.imag if t.is_complex() else None


def _negated(rng, t):
    return torch._neg_view if t.dtype not in (torch.bool, torch.uint8) else None


def _alias(rng, t):
    return rng.choice([lambda x: x.detach(), lambda x: x.data, lambda x: x.view_as(x)])


VIEWS = [_slice, _select, _transpose, _permute, _flatten, _split_dim, _unsqueeze, _squeeze]
VIEWS += [
    _expand,
    _diagonal,
    _diagonal,
    _roll,
    _chunk,
    _unbind,
    _unfold,
    _unfold,
    _as_strided,
    _as_strided,
]
VIEWS += [_real, _conj, _conj, _imag, _negated, _alias]
