# SPDX-License-Identifier: Apache-2.0
"""The end of a step, and what a program has asked to be called then."""

import threading
from collections.abc import Callable
from typing import Any

from spmdx import mark_step
from spmdx import sync as _sync
from spmdx._xla import uploads

_closures: list[tuple[Callable[..., Any], tuple, bool]] = []


def sync_device(wait: bool) -> None:
    """Ends the step, and waits for it if that is asked for."""
    uploads.all_used()
    if wait:
        _sync(wait=True)
    else:
        mark_step()


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
