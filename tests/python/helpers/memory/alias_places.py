# SPDX-License-Identifier: Apache-2.0
"""Which bytes a tensor of the CPU has: once or repeatedly, alone or with another."""

import copy

import torch


def _addresses(t):
    places = torch.full((), t.storage_offset(), dtype=torch.long)
    for size, stride in zip(t.shape, t.stride(), strict=True):
        places = places[..., None] + torch.arange(size) * stride
    item = t.element_size()
    return (places.reshape(-1, 1) * item + torch.arange(item)).reshape(-1).tolist()


def repeats(t):
    places = _addresses(t)
    return len(set(places)) < len(places)


def expanded(t):
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape, strict=True))


def tied(a, b):
    """They share bytes, and are not the same elements at the same places."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    same = (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
    return not same and bool(set(_addresses(a)) & set(_addresses(b)))


def walked(t):
    """The strides that lead anywhere."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]


def twins(*tensors):
    """The same views of copies of the storages."""
    return copy.deepcopy([t.detach() for t in tensors])
