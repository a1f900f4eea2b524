# SPDX-License-Identifier: Apache-2.0
"""What a call returns: tensors of its step, tensors that were there before, and constants."""

from collections.abc import Sequence, Set
from typing import Any

import torch
from torch.utils import _pytree

import spmdx._C as _C
from spmdx._annotate.classes import plain_class
from spmdx._replay.arguments import containers_in
from spmdx._replay.tape import HostFloat
from spmdx._replay.unfit import Unfit

_CONSTANTS = (int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.Size)


class Results:
    """The results of a traced call, taken apart.

    Args:
        value: what the call returned.
        arguments, watched: tensors that it was given, and those that it reaches.
        kept: lists and dicts that were there before, by ``id``.

    Attributes:
        tensors: those that the call made.
    """

    def __init__(
        self,
        value: Any,
        arguments: Sequence[torch.Tensor],
        watched: Sequence[torch.Tensor],
        kept: Set[int],
    ) -> None:
        if not kept.isdisjoint(containers_in(value)):
            raise Unfit("it returns a list or a dict that was there before")
        leaves, self._spec = _pytree.tree_flatten(value)
        self.tensors: list[torch.Tensor] = []
        self._sources: list[tuple[str, Any]] = []
        self._places: dict[int, int] = {}  # of those that the call made, by ``id``
        self._classes: list[type] = []  # of those that the call made: annotated ones have their own
        gradients: dict[int, tuple[str, Any]] = {
            id(t.grad): ("gradient", t) for t in watched if t.is_leaf and t.grad is not None
        }
        before = gradients | {id(t): ("watched", t) for t in watched}
        before |= {id(t): ("argument", i) for i, t in enumerate(arguments)}
        for leaf in leaves:
            self._sources.append(before.get(id(leaf)) or self._source(leaf))

    def _source(self, leaf: Any) -> tuple[str, Any]:
        if isinstance(leaf, torch.Tensor):
            if plain_class(type(leaf)) is not torch.Tensor or not _C.is_lazy(leaf):
                raise Unfit(
                    f"it returns a {type(leaf).__name__} on {leaf.device}, not on the device"
                )
            if vars(leaf):
                raise Unfit("it returns a tensor with attributes of its own")
            if (found := self._places.get(id(leaf))) is not None:
                return "made", found
            self._places[id(leaf)] = len(self.tensors)
            self.tensors.append(leaf)
            self._classes.append(type(leaf))
            return "made", len(self.tensors) - 1
        if type(leaf) is HostFloat:
            raise Unfit("it returns a number that changes from call to call")
        if not isinstance(leaf, _CONSTANTS):
            raise Unfit(f"it returns a {type(leaf).__name__}, which may change")
        return "constant", leaf

    def take(self) -> list[torch.Tensor]:
        """Those that the call made; from now on they are not held here."""
        made, self.tensors = self.tensors, []
        self._places.clear()
        return made

    def are_alike(self, other: "Results") -> bool:
        """Whether both calls return the same, but for what the tensors hold."""
        if self._spec != other._spec:
            return False
        pairs = zip(self._sources, other._sources, strict=True)
        return all(
            a[0] == b[0] and (a[0] == "made" or _C.replays.is_same(a[1], b[1])) for a, b in pairs
        )

    def of(self, made: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> Any:
        """What the call returns with these tensors."""
        for tensor, cls in zip(made, self._classes, strict=True):
            if type(tensor) is not cls:
                tensor.__class__ = cls
        places = {"made": made, "argument": arguments}
        leaves = [
            places[kind][of] if kind in places else of.grad if kind == "gradient" else of
            for kind, of in self._sources
        ]
        return leaves[0] if self._spec.is_leaf() else _pytree.tree_unflatten(leaves, self._spec)
