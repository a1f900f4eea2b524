# SPDX-License-Identifier: Apache-2.0
"""Sampling: what a loader draws its order from, and how its first batches are left out."""

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def parts_of(loader: Any) -> list[Any]:
    """The loader's samplers and data set, each once, where it has them."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    named = (
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
        getattr(loader, "dataset", None),
    )
    return list({id(part): part for part in named if part is not None}.values())


def generators(loader: Any) -> list[torch.Generator]:
    """The generators from which the loader, its samplers and its data set draw, each once."""
    held = [getattr(part, "generator", None) for part in (loader, *parts_of(loader))]
    return list({id(g): g for g in held if isinstance(g, torch.Generator)}.values())


def draws(loader: Any) -> bool:
    """Whether its order comes from a generator, its own or the global one."""
    random = RandomSampler | SubsetRandomSampler | WeightedRandomSampler
    return bool(generators(loader)) or any(isinstance(p, random) for p in parts_of(loader))


class _Rest:
    """A sampler without its first ``count`` entries."""

    def __init__(self, sampler: Any, count: int):
        self._sampler = sampler
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._sampler), self._count, None)

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._count)


class Workers:
    """Persistent workers draw their seeds once in a run; a resumed run must not draw them again.

    Args:
        seeded: whether they have drawn them before.
    """

    def __init__(self, seeded: bool = False):
        self._seeded = self._seeded_before = seeded
        self._alive: Any = None

    def begin(self, resumed: bool) -> None:
        """Note that an epoch begins."""
        if not resumed:
            self._seeded_before = self._seeded

    def seeded_at(self, amid: bool) -> bool:
        """Whether the workers had drawn when the epoch began, or have by now."""
        return self._seeded_before if amid else self._seeded

    def iterate(self, loader: Any) -> Iterator[Any]:
        """``iter(loader)``."""
        if not getattr(loader, "persistent_workers", False):
            return iter(loader)
        again = self._seeded and self._alive is not loader
        self._seeded, self._alive = True, loader
        if not again:
            return iter(loader)
        own, loader.generator = loader.generator, torch.Generator()
        loader.generator.manual_seed(torch.default_generator.initial_seed())
        try:
            return iter(loader)
        finally:
            loader.generator = own


def skipped(loader: Any, count: int, iterate: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """The loader's batches after the first ``count``; ``iterate`` begins to read them.

    A DataLoader over a data set with indices does not read them: its sampler leaves them out.
    """
    indexed = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if not count or not indexed:
        return itertools.islice(iterate(loader), count, None)
    rest = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    rest.__dict__[name] = _Rest(getattr(loader, name), count)  # a DataLoader forbids assignment
    rest._iterator = None  # its workers are its own
    return iterate(rest)
