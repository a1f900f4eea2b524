# SPDX-License-Identifier: Apache-2.0
"""The class that a tensor takes when it is annotated, by the one that it had before; and back."""

import functools
from collections.abc import Callable

import torch

_Class = type[torch.Tensor]
_TAKEN: dict[_Class, _Class] = {}  # by the class before


def taken_by(plain: type) -> Callable[[type], type]:
    """Decorates the class that annotated tensors of class ``plain`` take."""

    def note(cls: type) -> type:
        _TAKEN[plain] = cls
        return cls

    return note


@functools.cache
def sharded_class(cls: type) -> type:
    """The class a tensor of class ``cls`` takes when it is annotated."""
    base = _TAKEN[torch.Tensor]
    if issubclass(cls, base):
        return cls
    if cls in _TAKEN:
        return _TAKEN[cls]
    names = {"_plain_class": cls, "__module__": base.__module__}
    return type(f"Sharded{cls.__name__}", (base, cls), names)


def plain_class(cls: type) -> type:
    """The inverse of :func:`sharded_class`."""
    for plain, taken in _TAKEN.items():
        if taken is cls:
            return plain
    return getattr(cls, "_plain_class", cls)
