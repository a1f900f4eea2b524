# SPDX-License-Identifier: Apache-2.0
"""Tensors of checkpoints that are read in boxes: as they are stored, or joined of several."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from spmdx._checkpoint.safetensors.load import opened

Index = tuple[slice, ...]


class Part(ABC):
    """What can be read in boxes.

    Attributes:
        shape: of the whole.
        dtype: as it is stored.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @abstractmethod
    def read(self, index: Index, target: torch.Tensor) -> None:
        """Fill ``target`` with a box: of every dim, from where to where."""


class Stored(Part):
    """A tensor of a safetensors file."""

    def __init__(self, path: Path, name: str, shape: Sequence[int], dtype: torch.dtype):
        self.path, self.name, self.shape, self.dtype = path, name, tuple(shape), dtype

    def read(self, index: Index, target: torch.Tensor) -> None:
        with opened(self.path) as file:
            data = file.get_slice(self.name)[index] if index else file.get_tensor(self.name)
            target.copy_(data)


class Stacked(Part):
    """Parts of one shape, along a new dim."""

    def __init__(self, parts: Sequence[Part], dim: int):
        shape = list(parts[0].shape)
        self.dim, self.dtype = dim % (len(shape) + 1), parts[0].dtype
        shape.insert(self.dim, len(parts))
        self.parts, self.shape = list(parts), tuple(shape)

    def read(self, index: Index, target: torch.Tensor) -> None:
        rest = index[: self.dim] + index[self.dim + 1 :]
        for n, part in enumerate(self.parts[index[self.dim]]):
            part.read(rest, target.select(self.dim, n))


class Joined(Part):
    """Parts one after the other along a dim."""

    def __init__(self, parts: Sequence[Part], dim: int):
        shape = list(parts[0].shape)
        self.dim, self.dtype = dim % len(shape), parts[0].dtype
        shape[self.dim] = sum(part.shape[self.dim] for part in parts)
        self.parts, self.shape = list(parts), tuple(shape)

    def read(self, index: Index, target: torch.Tensor) -> None:
        wanted, begin = index[self.dim], 0
        for part in self.parts:
            end = begin + part.shape[self.dim]
            low, high = max(wanted.start, begin), min(wanted.stop, end)
            if low < high:
                own = slice(low - begin, high - begin)
                there = target.narrow(self.dim, low - wanted.start, high - low)
                part.read((*index[: self.dim], own, *index[self.dim + 1 :]), there)
            begin = end


class Cut(Part):
    """Some of a part: ``size`` from ``begin`` on, along a dim."""

    def __init__(self, part: Part, dim: int, begin: int, size: int):
        shape = list(part.shape)
        self.part, self.dim, self.begin = part, dim % len(shape), begin
        shape[self.dim] = size
        self.shape, self.dtype = tuple(shape), part.dtype

    def read(self, index: Index, target: torch.Tensor) -> None:
        wanted = index[self.dim]
        moved = slice(wanted.start + self.begin, wanted.stop + self.begin)
        self.part.read((*index[: self.dim], moved, *index[self.dim + 1 :]), target)


class Whole(Part):
    """One of the results of a conversion that is known only as a whole."""

    def __init__(self, results: "Results", name: str, like: torch.Tensor):
        self.results, self.name = results, name
        self.shape, self.dtype = tuple(like.shape), like.dtype

    def read(self, index: Index, target: torch.Tensor) -> None:
        target.copy_(self.results.get()[self.name][index])


class Results:
    """What ``make`` gives, kept until the caller lets go of it."""

    def __init__(self, make: Callable[[], dict[str, torch.Tensor]]):
        self._make = make
        self._made: dict[str, torch.Tensor] | None = None

    def get(self) -> dict[str, torch.Tensor]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def forget(self) -> None:
        self._made = None


def everything(part: Part) -> torch.Tensor:
    whole = torch.empty(part.shape, dtype=part.dtype)
    part.read(tuple(slice(0, size) for size in part.shape), whole)
    return whole
