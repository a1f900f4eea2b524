# SPDX-License-Identifier: Apache-2.0
"""Prefetch: an iterator whose next items a thread fetches while the loop works."""

import atexit
import collections
import threading
import weakref
from collections.abc import Callable
from typing import Any

_CLOSE_SECONDS = 5.0  # how long the end of a loop waits for an item that is being fetched


class _Shelf:
    """What passes between the thread and the loop."""

    def __init__(self, size: int):
        self.size = size
        self.items: collections.deque[tuple[Any, BaseException | None]] = collections.deque()
        self.changed = threading.Condition()
        self.closed = False

    def wait_for_room(self) -> bool:
        """Whether to fetch another item: False once the loop has ended."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.items) < self.size)
            return not self.closed

    def put(self, item: Any, error: BaseException | None) -> None:
        with self.changed:
            if not self.closed:
                self.items.append((item, error))
                self.changed.notify_all()

    def take(self) -> tuple[Any, BaseException | None]:
        with self.changed:
            self.changed.wait_for(lambda: self.items)
            item = self.items.popleft()
            self.changed.notify_all()
            return item

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()


def _fill(shelf: _Shelf, fetch: Callable[[], Any]) -> None:
    """The thread. It does not refer to the iterator, which can so be collected meanwhile."""
    while shelf.wait_for_room():
        try:
            item = fetch()
        except BaseException as error:  # StopIteration too; the loop raises it
            shelf.put(None, error)
            return
        shelf.put(item, None)
        del item


class Prefetch:
    """An iterator over what ``fetch`` gives until it raises; what it raised comes from ``next``.

    The first item is fetched where the loop is, so that what is drawn from global generators at the
    start of an epoch (the seed of a sampler, the seeds of workers) is drawn where it is in a loop
    without a thread.

    Args:
        fetch: gives the next item; raises StopIteration at the end.
        size: how many items are fetched ahead; 0 means no thread.

    Example:
        >>> items = iter(range(3))
        >>> list(Prefetch(lambda: next(items), 2))
        [0, 1, 2]
    """

    def __init__(self, fetch: Callable[[], Any], size: int):
        self._fetch: Callable[[], Any] | None = fetch
        self._shelf = _Shelf(size)
        self._thread: threading.Thread | None = None
        self._ended = False
        _open.add(self)

    def __iter__(self) -> "Prefetch":
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._fetch is None:
            raise RuntimeError("a newer loop over the same loader has begun, which ended this one")
        try:
            if self._thread is not None:
                item, error = self._shelf.take()
                if error is not None:
                    raise error
            else:
                item = self._fetch()
                self._start()
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):  # Ctrl-C ends nothing here
                self._ended = True
                self.close()
            raise
        return item

    def _start(self) -> None:
        if self._shelf.size:
            self._thread = threading.Thread(
                target=_fill, args=(self._shelf, self._fetch), name="spmdx-prefetch", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """End the thread; a thread that waits for a slow item ends when it has the item."""
        self._shelf.close()
        # The garbage collector may call this in the thread itself.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)
        self._fetch = None


_open: "weakref.WeakSet[Prefetch]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End all threads before the interpreter ends."""
    for iterator in list(_open):
        iterator.close()
