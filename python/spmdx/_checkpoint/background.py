# SPDX-License-Identifier: Apache-2.0
"""Saves in the background: one at a time, and no error of theirs is lost."""

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait

_running: "SaveFuture | None" = None


class SaveFuture(Future):
    """A save that goes on in the background; ``result()`` waits for it and raises its error."""

    seen = False

    def result(self, timeout: float | None = None) -> None:
        """Wait until the checkpoint is in place.

        Args:
            timeout: seconds, None: as long as it takes.

        Raises:
            CheckpointError: it could not be written.
            TimeoutError: it takes longer.
        """
        try:
            super().result(timeout)
        finally:
            self.seen = self.done()


def start(work: Callable[[], None], what: str) -> SaveFuture:
    """Run ``work`` in a thread that the interpreter waits for at its end."""
    global _running
    future = _running = SaveFuture()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            future.set_exception(error)
            warnings.warn(f"{what} failed in the background: {error}", stacklevel=2)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="spmdx-checkpoint").start()
    return future


def wait_for_last() -> None:
    """Wait for the end of a save that runs."""
    if _running is not None:
        wait([_running])


def raise_unseen() -> None:
    """Wait for the end of a save that runs; raise its error if nobody has asked for its result."""
    global _running
    last, _running = _running, None
    if last is not None and not last.seen:
        last.result()
