# SPDX-License-Identifier: Apache-2.0
"""Gloo's groups, whose event threads do not take the core from a thread that sends."""

import contextlib
import os
from typing import Any

import torch.distributed as dist

from spmdx._world.store import FAR

_TASKS = "/proc/self/task"
_EVENTS = "gloo_tcp_loop"  # the name of a thread that waits for what sockets have


def group(store: Any, index: int, count: int) -> Any:
    """A c10d backend of Gloo among ``count`` processes, of which this one is ``index``.

    What comes wakes the event thread of a group. On the core of a thread that is sending it would
    find that one's lock taken and poll until its time slice is over, 3 ms, since that one waits
    for the core. Threads of batches do not preempt others when they wake.
    """
    before = _event_threads()
    made = dist.ProcessGroupGloo(store, index, count, FAR)
    for thread in _event_threads() - before:
        with contextlib.suppress(OSError):  # where that is not allowed, exchanges are slower
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
    return made


def _event_threads() -> set[int]:
    """Those of this process, on Linux; elsewhere none is known."""
    if not os.path.isdir(_TASKS):
        return set()
    return {int(thread) for thread in os.listdir(_TASKS) if _name(thread) == _EVENTS}


def _name(thread: str) -> str:
    try:
        with open(f"{_TASKS}/{thread}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:  # it has ended
        return ""
