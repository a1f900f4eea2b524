# SPDX-License-Identifier: Apache-2.0
"""A compiler's process, seen from the program: what it answers, and what becomes of it."""

import contextlib
import json
import os
import pathlib
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch

import spmdx._C as _C
from spmdx._segments.compiler import Compiler, NotTaken
from spmdx._segments.one_line import one_line
from spmdx._segments.segment import Segment

_POLL = 0.2  # seconds
_TO_DIE = 5.0  # seconds, once it has closed its end
_TO_BEGIN = 120.0  # seconds at least, until Python has imported PyTorch, at the lowest priority


class CompilerFailed(Exception):
    """A compiler has not done what it was asked for; says why."""


class WorkerProcess:
    """Started when it is needed, and again after it has died."""

    def __init__(self, compiler: Compiler, seconds: float) -> None:
        """Args: seconds: how long an answer may take."""
        self._compiler = compiler
        self._seconds = seconds
        self._said = tempfile.TemporaryFile("a+", encoding="utf-8", errors="replace")
        self._process: subprocess.Popen | None = None
        self._stopped = False

    def ops(self) -> list[str]:
        """Of all ops of the table, those that the compiler takes."""
        return self._start()["ops"]

    def compile(self, segment: Segment, row: dict[str, Any], folder: pathlib.Path) -> None:
        """Have the segment compiled into the folder.

        Raises:
            NotTaken: some ops of it cannot be.
            CompilerFailed: it was not.
        """
        if self._process is None:
            self._start()
        self._ask({"text": segment.text, "row": row, "folder": str(folder)})

    def stop(self) -> None:
        """End it, whatever it does. Any thread."""
        self._stopped = True
        self._end()
        self._said.close()

    def _start(self) -> dict[str, Any]:
        try:
            pickled = pickle.dumps(self._compiler)
        except Exception as error:  # of what the user's class holds
            raise CompilerFailed(f"it cannot be sent to a process of its own: {error}") from error
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SPMDX_COMPILER"):
            environment.pop(name, None)  # it is no process of the program
        environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spmdx._compiling.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is the program's
        )
        self._answer(max(self._seconds, _TO_BEGIN))
        threads = torch.get_num_threads()
        return self._ask({"compiler": pickled.hex(), "known": _C.rules(), "threads": threads})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None
        self._said.truncate(0)  # before it has anything to say to this
        with contextlib.suppress(BrokenPipeError):  # it died: there is no answer
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        return self._answer(self._seconds)

    def _answer(self, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        line = self._line(process, seconds)
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TO_DIE)
            status = process.poll()
            self._end()
            raise CompilerFailed(f"its process died with status {status}{self._last_words()}")
        answer = json.loads(line)
        if "left" in answer:
            raise NotTaken({place: one_line(why) for place, why in answer["left"]})
        if "error" in answer:
            raise CompilerFailed(answer["error"])
        return answer

    def _last_words(self) -> str:
        """What it said last on stderr, in parentheses."""
        self._said.seek(0)
        lines = self._said.read().split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f" ({one_line(last)})" if last else ""

    def _line(self, process: subprocess.Popen, seconds: float) -> str:
        """The next line; empty if the process ends before."""
        assert process.stdout is not None
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not selector.select(_POLL):
                if self._stopped or time.monotonic() > until:
                    self._end()
                    raise CompilerFailed(f"it had no answer after {seconds:.0f} s")
        return process.stdout.readline()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
