# SPDX-License-Identifier: Apache-2.0
"""Work in processes of their own: what crashes or hangs costs one item, and is reported by name."""

import collections
import contextlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


def run_all(script: str, items: list[str], jobs: int, most: int, patience: float) -> Iterator[dict]:
    """Yields what ``script --child`` printed about each item, or how it died.

    Args:
        script: a file that ends in :func:`serve`.
        items: names, each handled once; whoever is free takes the next.
        jobs: how many processes at a time.
        most: items after which a process makes room for a fresh one.
        patience: seconds without a sign of life after which a process hangs.

    Returns:
        A dict an item, as they come: what the child said, or ``{"item", "died"}``.
    """
    left = collections.deque(items)
    rows: queue.Queue[Any] = queue.Queue()

    def work() -> None:
        try:
            while left:
                hand_out(script, left, most, patience, rows.put)
        except BaseException as error:  # raised where the rows are read
            rows.put(error)
        rows.put(None)

    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    while jobs:
        row = rows.get()
        if isinstance(row, BaseException):
            raise row
        if row is None:
            jobs -= 1
        else:
            yield row


def hand_out(
    script: str,
    left: collections.deque[str],
    most: int,
    patience: float,
    say: Callable[[dict], None],
) -> None:
    """Gives items of ``left`` to one process, one at a time, until it has had its share or dies."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(script, pathlib.Path(folder) / "sign", patience)
        try:
            for _ in range(most):
                item = left.popleft()
                row = worker.ask(item)
                if isinstance(row, str):
                    say({"item": item, "died": f"{row} {worker.sign.read_text()}"})
                    return
                say(row)
        except IndexError:
            return  # another worker took the last
        finally:
            worker.end()


class Worker:
    """A child process in the loop of :func:`serve`."""

    def __init__(self, script: str, sign: pathlib.Path, patience: float):
        self.sign, self._patience = sign, patience
        sign.write_text("")
        self._child = subprocess.Popen(
            [sys.executable, script, "--child", str(sign)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, item: str) -> dict | str:
        """What it says of an item, or how it died."""
        with contextlib.suppress(BrokenPipeError):  # it has died, which its end tells
            self._child.stdin.write(item + "\n")
            self._child.stdin.flush()
        seen, since = None, time.monotonic()
        while True:
            try:
                line = self._lines.get(timeout=0.5)
            except queue.Empty:
                now = self.sign.stat().st_mtime_ns
                if now != seen:
                    seen, since = now, time.monotonic()
                elif time.monotonic() - since > self._patience:
                    self._child.kill()
                    return f"hung for {self._patience} s"
                continue
            if line is None:
                return f"crashed with status {self._child.wait()}"
            if line.startswith("{"):
                return json.loads(line)

    def end(self) -> None:
        """Lets it come to its end."""
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        self._reader.join()
        self._child.stdout.close()
        self._child.wait()


def serve(handle: Callable[[str, Callable[[str], None]], dict]) -> None:
    """The child's loop: handles every item it reads.

    Args:
        handle: makes a dict of an item; its second argument is called with where it is.
    """
    sign = pathlib.Path(sys.argv[2])
    for line in sys.stdin:
        item = line.rstrip("\n")
        print(json.dumps({"item": item, **handle(item, sign.write_text)}), flush=True)
