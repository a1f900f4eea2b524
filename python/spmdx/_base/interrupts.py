# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C within code that drops it, that says something else of it, or that it would break."""

import signal
import sys
import threading
from types import FrameType

_MOMENT = 0.05  # seconds


class _Hearing:
    """A block in which Ctrl-C reaches ``_hear`` first, in the thread where Python handles it."""

    def __enter__(self) -> None:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before = before
                signal.signal(signal.SIGINT, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError

    def _stop(self) -> None:
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._hear:
            signal.signal(signal.SIGINT, self._before)


class interruptible(_Hearing):
    """A block that Ctrl-C ends with KeyboardInterrupt, whatever the code in it makes of that.

    torch.load and torch.save call Python from C, where an exception may get lost: what they raise
    then is that a file is damaged, or that an object has no such method. So it is kept from where
    the signal is handled. Interrupts that the program was handling already do not count.
    """

    def __enter__(self) -> None:
        self._handled = sys.exception()
        self._heard: BaseException | None = None
        super().__enter__()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        assert callable(self._before)
        try:
            self._before(number, frame)
        except BaseException as error:
            self._heard = error
            raise

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        self._stop()
        heard = self._heard or self._interrupt_behind(error)
        self._handled = self._heard = None
        try:
            if heard is not None and not isinstance(error, KeyboardInterrupt):
                raise heard
        finally:
            del heard, error, trace  # or this frame holds the error, which holds this frame

    def _interrupt_behind(self, error: BaseException | None) -> BaseException | None:
        """The KeyboardInterrupt in whose course ``error`` was raised, if there is one."""
        while error is not None and error is not self._handled:
            if isinstance(error, KeyboardInterrupt):
                return error
            error = error.__context__
        return None


class put_off(_Hearing):
    """A block that a first Ctrl-C does not end: it comes a moment after the block instead."""

    def __enter__(self) -> None:
        self._heard = False
        super().__enter__()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        assert callable(self._before)
        self._heard = not self._heard
        if not self._heard:
            self._before(number, frame)

    def __exit__(self, *error: object) -> None:
        self._stop()
        if self._heard:  # not now: where the block is an import, that has not ended yet
            main = threading.main_thread().ident
            again = threading.Timer(_MOMENT, signal.pthread_kill, (main, signal.SIGINT))
            again.daemon = True
            again.start()
