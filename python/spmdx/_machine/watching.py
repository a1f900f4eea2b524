# SPDX-License-Identifier: Apache-2.0
"""Steps that are watched: when each of their ops began and ended."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import spmdx._C as _C
from spmdx._machine.timing import agreed
from spmdx._world import processes
from spmdx.errors import ShardingError, naming

_ROUNDS = 4
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


def finish_recorded(measured: str) -> None:
    """Run what is recorded, so that times are those of what comes behind.

    Args:
        measured: what cannot be measured where nothing runs.

    Raises:
        ShardingError: nothing runs within :func:`spmdx.plan_only`.
    """
    if _C.planning_only():
        raise ShardingError(
            f"nothing runs within spmdx.plan_only(), so no {measured} can be measured. Expected a "
            "program that runs. Call it before, or after."
        )
    _C.flush(awaited=True)
    _C.wait()


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


def medians(
    steps: Sequence[tuple[Callable[[], Any], int]],
    figure: Callable[[list[dict[str, Any]]], float],
    rounds: int = _ROUNDS,
) -> np.ndarray:
    """Of each step, which is watched so often a round: the median of a figure of its ops.

    What else the machine does changes over time, so that all of them come in each round. Of
    several processes all have to call this alike, and get the same.
    """
    found: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for (step, often), figures in zip(steps, found, strict=True):
            step()
            processes.barrier()
            for run in watched(step, often):
                figures.append(figure([r for r in run["ranges"] if r["kind"] == "node"]))
    return np.array([agreed(float(np.median(figures))) for figures in found])
