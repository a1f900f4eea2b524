# SPDX-License-Identifier: Apache-2.0
"""Steps: end the traced program, plan it, run it behind the caller's back."""

import atexit
import contextlib
from collections.abc import Iterator

import spmdx._C as _C
from spmdx._base import logs


def mark_step() -> None:
    """End the step: plan what was traced since the last one and start it; returns at once.

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
    logs.running.debug("mark_step")
    _C.flush()


def sync(wait: bool = False) -> None:
    """End the step as :func:`mark_step` does.

    Args:
        wait: return only when every step has run; Ctrl-C ends the wait.

    Raises:
        Exception: as :func:`mark_step`; with ``wait``, also what this step raised.

    Example:
        >>> import torch, spmdx
        >>> x = torch.ones(4).to("spmdx") * 3
        >>> spmdx.sync(wait=True)
    """
    logs.running.debug("sync%s", ", which waits" if wait else "")
    _C.flush(awaited=wait)
    if wait:
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
    logs.running.debug("end of a step")
    _C.flush()


@atexit.register
def _wait() -> None:
    """Running steps end before the interpreter takes their tensors apart.

    An error that nobody has seen yet is printed. In a forked child nothing runs.
    """
    if not _C.in_forked_child():
        _C.wait()
