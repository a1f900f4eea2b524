# SPDX-License-Identifier: Apache-2.0
"""Progress bars: on a terminal, of what takes longer than a second."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import spmdx._C as _C

PATIENCE = 1.0  # seconds in which nothing is shown
_POLL = 0.25
_ended = threading.Event()
_watching = False


def is_wanted() -> bool:
    """Whether bars are shown: stderr is a terminal, and ``SPMDX_PROGRESS`` is not ``off``.

    Of several processes the first one shows them.
    """
    if os.environ.get("SPMDX_PROGRESS") == "off" or os.environ.get("RANK", "0") != "0":
        return False
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A block that tells how far it is.

    Args:
        what: as ``"saving"``.
        total: of bytes.

    Yields:
        A function to call with the bytes that were added; outside of the main thread, and where
        no bars are wanted, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread() or not is_wanted():
        yield lambda added: None
        return
    began, done, bar = time.monotonic(), 0, None

    def advance(added: int) -> None:
        nonlocal done, bar
        done += added
        if bar is None and time.monotonic() - began > PATIENCE:
            bar = _start(what, total)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def watch_planning() -> None:
    """From now on plans that take long show that they are made, on a terminal."""
    global _watching
    if _watching or not is_wanted():
        return
    _watching = True
    threading.Thread(target=_watch, name="spmdx-progress", daemon=True).start()


def stop_watching() -> None:
    """At the end of the program."""
    _ended.set()


def _watch() -> None:
    while not _ended.wait(_POLL):
        taken = _C.planning_ns()
        if taken < PATIENCE * 1e9:
            continue
        bar = _start("planning", None)
        while bar is not None and _C.planning_ns() >= taken and not _ended.wait(_POLL):
            taken = _C.planning_ns() or taken
        if bar is not None:
            bar.stop()


def _start(what: str, total: int | None) -> Any:
    """A bar that runs; None where the program shows one of its own already."""
    import rich
    import rich.console
    import rich.progress as parts

    shown = rich.get_console()
    if getattr(shown, "_live", None) or getattr(shown, "_live_stack", None):
        return None
    columns: list[Any] = [parts.SpinnerColumn(), parts.TextColumn("spmdx: {task.description}")]
    if total is not None:
        columns += [parts.BarColumn(), parts.DownloadColumn(), parts.TransferSpeedColumn()]
    columns.append(parts.TimeElapsedColumn())
    bar = parts.Progress(*columns, console=rich.console.Console(stderr=True), transient=True)
    bar.start()
    bar.add_task(what, total=total)
    return bar
