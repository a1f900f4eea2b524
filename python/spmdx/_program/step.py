# SPDX-License-Identifier: Apache-2.0
"""Steps: end the traced program, plan it, run it behind the caller's back."""

import atexit
import contextlib
from collections.abc import Iterator
from typing import Protocol

import spmdx._C as _C
from spmdx._base import logs


class Holder(Protocol):
    """What takes the ends of steps in place of running them."""

    ran_inside: bool

    def end_microbatch(self) -> None: ...


held: list[Holder] = []  # those that are open; the last one counts


def _end(by: str) -> None:
    if held:
        held[-1].end_microbatch()
        return
    logs.running.debug(by)
    _C.flush()


def mark_step() -> None:
    """End the step: plan what was traced since the last one and start it; returns at once.

    Within :func:`spmdx.accumulate` it ends a microbatch, and nothing runs yet.

    Raises:
        ShardingError: the program cannot be planned.
        Exception: what an op of an earlier step raised in the background, with the user's line.

    Example:
        >>> import torch, spmdx
        >>> x = torch.ones(4).to("spmdx") * 3
        >>> spmdx.mark_step()
        >>> x.sum().item()
        12.0
    """
    _end("mark_step")


def sync(wait: bool = False) -> None:
    """End the step as :func:`mark_step` does.

    Args:
        wait: return only when every step has run, within :func:`spmdx.accumulate`, too; Ctrl-C
            ends the wait.

    Raises:
        Exception: as :func:`mark_step`; with ``wait``, also what this step raised.

    Example:
        >>> import torch, spmdx
        >>> x = torch.ones(4).to("spmdx") * 3
        >>> spmdx.sync(wait=True)
    """
    if not wait:
        _end("sync")
        return
    logs.running.debug("sync, which waits")
    for holder in held:
        holder.ran_inside = True
    _C.flush(awaited=True)
    _C.wait()


@contextlib.contextmanager
def step() -> Iterator[None]:
    """A block that is one step: :func:`mark_step` at its end, unless it raised.

    Example:
        >>> import torch, spmdx
        >>> with spmdx.step():
        ...     x = torch.ones(4).to("spmdx") + 1
        >>> x.tolist()
        [2.0, 2.0, 2.0, 2.0]
    """
    yield
    _end("end of a step")


@atexit.register
def _wait() -> None:
    """Running steps end before the interpreter takes their tensors apart.

    An error that nobody has seen yet is printed. In a forked child nothing runs.
    """
    if not _C.in_forked_child():
        _C.wait()
