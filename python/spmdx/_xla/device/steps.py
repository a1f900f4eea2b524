# SPDX-License-Identifier: Apache-2.0
"""The end of a step, and what a program has asked to be called then."""

import threading
from collections.abc import Callable
from typing import Any

from spmdx import debug, mark_step
from spmdx import sync as _sync
from spmdx._xla.device import counters, uploads

_closures: list[tuple[Callable[..., Any], tuple, bool]] = []


def sync_device(wait: bool) -> None:
    """Ends the step, and waits for it if that is asked for."""
    uploads.all_used()
    planned = debug.counters()["plans_compiled"]
    if wait:
        _sync(wait=True)
    else:
        mark_step()
    if debug.counters()["plans_compiled"] > planned:
        _count_aliases()
        if counters.shardings_are_chosen():
            counters.count("CompileWithAutoSharding")


def _count_aliases() -> None:
    """Counts the outputs of a new plan that take the memory of an input."""
    taken = debug.dump().count(" donates")
    if taken:
        counters.sample("InputOutputAliasCount", taken)


def add_closure(closure: Callable[..., Any], args: tuple, run_async: bool) -> None:
    """Lets ``closure`` be called when the step has ended."""
    _closures.append((closure, args, run_async))


def run_closures() -> None:
    """Calls what was added, in order."""
    waiting, _closures[:] = list(_closures), []
    for closure, args, run_async in waiting:
        if run_async:
            threading.Thread(target=closure, args=args).start()
        else:
            closure(*args)
