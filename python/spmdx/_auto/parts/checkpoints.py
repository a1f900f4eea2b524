# SPDX-License-Identifier: Apache-2.0
"""Activation checkpoints that a program has around parts: how often each is computed again."""

import inspect
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint

_CODE = inspect.unwrap(torch.utils.checkpoint.checkpoint).__code__


class Around(NamedTuple):
    """The checkpoints that a call is within, the outermost first.

    Attributes:
        each: an object that each has for itself.
        hides_gradients: whether the innermost one is reentrant, which runs without gradients first.
    """

    each: tuple[Any, ...] = ()
    hides_gradients: bool = False


class Again(NamedTuple):
    """How often a part is computed again.

    Attributes:
        times: with its results, since another part behind it reads them.
        is_last: and once more for its own backward pass alone.
    """

    times: int = 0
    is_last: bool = False


def checkpoints_around() -> Around:
    """Those of ``torch.utils.checkpoint`` that run now."""
    found: list[Any] = []
    hides = False
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is _CODE:
            held = frame.f_locals
            hides = hides if found else bool(held["use_reentrant"])
            found.append(held["kwargs"])  # of this call alone
        frame = frame.f_back  # type: ignore[assignment]
    return Around(tuple(reversed(found)), hides and not torch.is_grad_enabled())


def is_second_time() -> bool:
    """Whether a backward pass is what calls, as checkpoints do to compute again."""
    return torch._C._current_graph_task_id() != -1


def computed_again(within: Sequence[tuple[int, ...]]) -> list[Again]:
    """By call, how often it is computed again.

    A checkpoint computes again what is in it up to the last thing that its backward passes read;
    of a checkpoint that is the last one in another, that are its arguments.

    Args:
        within: by call, in order, the checkpoints around it, the outermost first.
    """
    found = []
    for at, path in enumerate(within):
        is_last = [_is_last(within, at, level) for level in range(len(path))]
        times = sum(not last for last in is_last)
        found.append(Again(times, bool(path) and is_last[-1]))
    return found


def _is_last(within: Sequence[tuple[int, ...]], at: int, level: int) -> bool:
    """Whether the checkpoint at this level has nothing behind the call, or what is around it."""
    path, end = within[at], level + 1
    for other in within[at + 1 :]:
        if other[:end] != path[:end]:
            return True
        if end == len(path) or other[: end + 1] != path[: end + 1]:
            return False
    return True
