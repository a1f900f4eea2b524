# SPDX-License-Identifier: Apache-2.0
"""Steps that are watched: when each of their ops began and ended."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import spmdx._C as _C
from spmdx.errors import ShardingError, naming

_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def measuring(called: str) -> Iterator[None]:
    """Times within are of one measurement; ``called`` is how the user asked for it.

    Raises:
        ShardingError: another one is under way.
    """
    with naming(called):
        if not _one_at_a_time.acquire(blocking=False):
            raise ShardingError(
                "a step is measured already. Expected one measurement at a time. Call "
                f"spmdx.{called} when that one has returned."
            )
    try:
        yield
    finally:
        _one_at_a_time.release()


def watched(step: Callable[[], Any], steps: int) -> list[dict[str, Any]]:
    """What each of so many steps has run, and when.

    REQUIRES: ``measuring``, and that ``step`` returns when all that it recorded has run.
    """
    runs = []
    _C.watch_for_times(True)
    try:
        _C.take_measured()
        for _ in range(steps):
            step()
            runs.append(_C.take_measured())
    finally:
        _C.watch_for_times(False)
        _C.take_measured()
    return runs
