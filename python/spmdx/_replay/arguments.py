# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call: tensors of the device, and constants that the captured step was made for."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree

import spmdx._C as _C
from spmdx._annotate.classes import plain_class
from spmdx._replay.unfit import Unfit

_PLAIN = (int, float, bool, complex, str, bytes, type(None))
_CLASSES = (torch.Tensor, torch.nn.Parameter)


class Arguments:
    """What a function is called with, taken apart.

    Attributes:
        tensors: the tensors of the device, in order.
        constants: all else, in order; None where a tensor is.
        spec: how ``args`` and ``kwargs`` are made of these.
    """

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if not kwargs and all(isinstance(value, torch.Tensor) for value in args):
            leaves, self.spec = list(args), len(args)
        else:
            leaves, self.spec = _pytree.tree_flatten((tuple(args), kwargs))
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        for tensor in self.tensors:
            _require_fit(tensor)

    def without_tensors(self) -> "Arguments":
        """These, holding no tensor."""
        alike = copy.copy(self)
        alike.tensors = []
        return alike

    def are_alike(self, other: "Arguments") -> bool:
        """Whether a step for the others may hold for these: they differ by tensors alone."""
        if self.spec != other.spec or self._is_tensor != other._is_tensor:
            return False
        return all(map(is_same, self.constants, other.constants))


def is_same(a: Any, b: Any) -> bool:
    """Whether two constants cannot be told apart: equal numbers and texts, or one object."""
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, _PLAIN) and repr(a) == repr(b)


def _require_fit(tensor: torch.Tensor) -> None:
    if plain_class(type(tensor)) not in _CLASSES or not _C.is_lazy(tensor):
        raise Unfit(
            f"an argument is a {type(tensor).__name__} on {tensor.device}, not on the device"
        )
    if tensor.requires_grad and not tensor.is_leaf:
        raise Unfit("an argument requires a gradient and is computed outside of it")
