# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call: tensors of the device, and constants that the captured step was made for."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree

import spmdx._C as _C
from spmdx._annotate.classes import plain_class
from spmdx._replay.unfit import Unfit

_CLASSES = {torch.Tensor, torch.nn.Parameter}


class Arguments:
    """What a function is called with, taken apart.

    Attributes:
        tensors: the tensors of the device, in order.
        floats: the floats that are arguments themselves, in order.
        constants: all else, in order; None where a tensor is.
        spec: how ``args`` and ``kwargs`` are made of these.
    """

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._containers: set[int] = set()
        if not kwargs and all(isinstance(value, torch.Tensor) for value in args):
            self.spec: Any = len(args)
            self._leaves = self.tensors = list(args)
            self._is_tensor = [True] * len(args)
            self.constants: list[Any] = [None] * len(args)
            self.floats: list[float] = []
        else:
            self._take_apart(args, kwargs)
        for tensor in self.tensors:
            _require_fit(tensor)

    def _take_apart(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._containers = set(containers_in([args, kwargs]))
        self._leaves, self.spec = leaves, _ = _pytree.tree_flatten((tuple(args), kwargs))
        self._is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        floats = [value for value in (*args, *kwargs.values()) if type(value) is float]
        all_floats = sum(type(leaf) is float for leaf in leaves)
        self.floats = floats if len(floats) == all_floats else []  # those in lists are constants

    def without_tensors(self) -> "Arguments":
        """These, holding no tensor."""
        alike = copy.copy(self)
        alike.tensors = alike._leaves = []
        return alike

    def changed(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether ``args`` and ``kwargs`` are made of other things than they were."""
        try:
            now = Arguments(args, kwargs)
        except Unfit:
            return True
        same = len(now._leaves) == len(self._leaves) and all(
            a is b for a, b in zip(now._leaves, self._leaves, strict=True)
        )
        return not same or now.spec != self.spec

    def containers(self) -> set[int]:
        """Lists and dicts among them, by ``id``."""
        return self._containers

    @staticmethod
    def with_floats(
        args: Sequence[Any], kwargs: dict[str, Any], floats: Iterable[float]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with others in place of the floats that are arguments themselves."""
        rest = iter(floats)
        positional = tuple(next(rest) if type(value) is float else value for value in args)
        named = {k: next(rest) if type(v) is float else v for k, v in kwargs.items()}
        return positional, named

    def are_alike(self, other: "Arguments", but_floats: bool) -> bool:
        """Whether a step for the others may hold for these: they differ by tensors alone.

        Args:
            other: other arguments.
            but_floats: they may differ by floats that are arguments themselves, too.
        """
        if self.spec != other.spec or self._is_tensor != other._is_tensor:
            return False
        if not but_floats or not self.floats:
            return all(map(_C.replays.is_same, self.constants, other.constants))
        pairs = zip(self.constants, other.constants, strict=True)
        return all(
            _C.replays.is_same(a, b) or (type(a) is float and type(b) is float) for a, b in pairs
        )


def containers_in(value: Any) -> Iterator[int]:
    """Lists and dicts that are given, and those in them, by ``id``."""
    if isinstance(value, list | dict):
        yield id(value)
    if isinstance(value, list | tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers_in(inner)


def _require_fit(tensor: torch.Tensor) -> None:
    cls = type(tensor)
    is_plain = cls in _CLASSES or plain_class(cls) in _CLASSES
    if not is_plain or not _C.is_lazy(tensor):
        raise Unfit(
            f"an argument is a {type(tensor).__name__} on {tensor.device}, not on the device"
        )
    if vars(tensor):
        raise Unfit("an argument is a tensor with attributes of its own")
    if tensor.requires_grad and not tensor.is_leaf:
        raise Unfit("an argument requires a gradient and is computed outside of it")
