# SPDX-License-Identifier: Apache-2.0
"""How single things are put back: each function looks at one now, and returns what does it."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import is_
from typing import Any

import torch

from spmdx._pipelines.reached import CONTAINERS

PutBack = Callable[[], object]


def container(value: Any) -> PutBack:
    """Of a dict, list, set or deque: by the methods of that class, whatever a subclass does."""
    kind: Any = next(kind for kind in CONTAINERS if isinstance(value, kind))
    mapping = issubclass(kind, dict)

    def content() -> list[Any]:
        return [*kind.keys(value), *kind.values(value)] if mapping else list(kind.__iter__(value))

    before = content()

    def put_back() -> None:
        now = content()
        if len(now) == len(before) and all(map(is_, now, before)):
            return  # somebody may be iterating over it
        kind.clear(value)
        if mapping:
            half = len(before) // 2
            kind.update(value, zip(before[:half], before[half:], strict=True))
        else:
            (kind.update if kind is set else kind.extend)(value, before)

    return put_back


def numbers(generator: Any) -> PutBack:
    """Of a generator of random numbers: its state."""
    if isinstance(generator, random.SystemRandom):  # which has none
        return lambda: None
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if hasattr(generator, "bit_generator"):  # numpy's newer ones
        bits = generator.bit_generator
        return partial(setattr, bits, "state", bits.state)
    return partial(generator.set_state, generator.get_state(legacy=False))


def global_numbers() -> Iterator[PutBack]:
    """Of Python's and numpy's global random numbers; torch forks its own."""
    yield partial(random.setstate, random.getstate())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield partial(numpy.random.set_state, numpy.random.get_state(legacy=False))


def memory_of(tensor: torch.Tensor) -> PutBack:
    """Of a tensor: the memory that it stands for, which ``tensor.data = ...`` exchanges."""
    with torch.no_grad():
        before = tensor.detach()

    def put_back() -> None:
        if not tensor.is_set_to(before):
            tensor.data = before

    return put_back


def cpu_memory(tensors: Sequence[torch.Tensor]) -> Iterator[PutBack]:
    """Of tensors on the CPU, whose ops run: their bytes, of each memory once."""
    seen = set()
    for tensor in tensors:
        if tensor.device.type == "cpu":
            memory = tensor.untyped_storage()
            address = memory.data_ptr()
            if address and address not in seen:
                seen.add(address)
                yield _bytes(memory)


def _bytes(memory: torch.UntypedStorage) -> PutBack:
    view = torch.empty(0, dtype=torch.uint8, device="cpu").set_(memory)
    before = view.clone()

    def put_back() -> None:
        if memory.nbytes() < len(before):
            memory.resize_(len(before))
        if not torch.equal(view, before):  # memory that is only read may be a file's
            view.copy_(before)

    return put_back
