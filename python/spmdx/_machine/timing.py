# SPDX-License-Identifier: Apache-2.0
"""How long a call takes: in one process, and in several that may share the machine's cores."""

import statistics
import time
from collections.abc import Callable

from spmdx._world import processes

_WINDOW = 0.03  # seconds: some turns of the scheduler among processes that share a core
_WINDOWS = 4


def least_seconds(call: Callable[[], object], repeats: int) -> float:
    """Seconds of a call: the least of so many.

    Of several processes all have to call this alike, and get the same: what a call takes while all
    of them call. One call may find a core that others want as well free for once, so windows of
    many calls count, of which every process has its least one.
    """
    if processes.process_count() == 1:
        return min(_seconds(call) for _ in range(repeats))
    return agreed(own_least_seconds(call))


def own_least_seconds(call: Callable[[], object]) -> float:
    """The same of this process, of several; what others get, may differ."""
    call()
    shortest = min(_seconds(call) for _ in range(2))
    many = max(processes.exchange(max(1, int(_WINDOW / max(shortest, 1e-7)))))
    return min(_mean_of_window(call, many) for _ in range(_WINDOWS))


def agreed(figure: float) -> float:
    """What all processes take for a figure that each of them has measured: the median."""
    return statistics.median(processes.exchange(figure))


def _mean_of_window(call: Callable[[], object], many: int) -> float:
    processes.barrier()
    began = time.perf_counter()
    for _ in range(many):
        call()
    return (time.perf_counter() - began) / many


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
