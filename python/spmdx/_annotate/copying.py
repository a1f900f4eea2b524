# SPDX-License-Identifier: Apache-2.0
"""What a thread has under way of copies and pickles of tensors."""

import contextlib
import threading
import weakref
from collections.abc import Iterator

import torch

Met = tuple[weakref.ref, weakref.ref]


class _Copying(threading.local):
    """What is under way in a thread.

    Attributes:
        by_reference: a shallow copy.
        legacy: a save in PyTorch's old format.
        stands_for: a tensor that is asked how it is pickled, and the one that the pickler sees.
        pickled: of memory that picklers have met, the innermost last: the tensor that stands for it
            there, and what it was written from, which lives as long as that pickler.
    """

    def __init__(self) -> None:
        self.by_reference = self.legacy = False
        self.stands_for: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)
        self.pickled: dict[int, list[Met]] = {}


copying = _Copying()


@contextlib.contextmanager
def standing_for(twin: torch.Tensor, tensor: torch.Tensor) -> Iterator[None]:
    """While ``twin`` says how ``tensor`` is pickled."""
    before = copying.stands_for
    copying.stands_for = twin, tensor
    try:
        yield
    finally:
        copying.stands_for = before
