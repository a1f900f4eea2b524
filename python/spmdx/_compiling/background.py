# SPDX-License-Identifier: Apache-2.0
"""Compiling behind the program's back: one thread asks a process, and hands over what it makes."""

import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

import spmdx._C as _C
from spmdx._compiling import cache
from spmdx._compiling.worker_process import CompilerFailed, WorkerProcess
from spmdx._segments.compiler import Compiler, NotTaken
from spmdx._segments.one_line import of_error, one_line
from spmdx._segments.segment import Segment

_TO_END = 10.0  # seconds


def _what_runs(given: Any) -> Any:
    """What a compiler's ``load`` gave: a function, or the path of a library as text."""
    if callable(given) or isinstance(given, str):
        return given
    if isinstance(given, pathlib.PurePath):
        return str(given)
    raise TypeError(
        f"load gave a {type(given).__name__}. Expected a function of a list of tensors, or the "
        "path of a library"
    )


class Background:
    """A compiler in force, until it is stopped."""

    def __init__(
        self,
        compiler: Compiler,
        checks: bool,
        waits: bool,
        seconds: float,
        changed: Callable[[], None],
    ) -> None:
        """Starts at once; with ``waits`` it has said what it takes when this returns.

        Args:
            seconds: that a segment may take.
            changed: is called when there is a ``core`` or none any more, from any thread.
        """
        self.compiler = compiler
        self.ops: frozenset[str] = frozenset()  # that it takes, once it has said so
        self._changed = changed
        self.failure: str | None = None  # why it takes nothing
        self._checks, self._waits = checks, waits
        self._worker = WorkerProcess(compiler, seconds)
        self.core: _C.SegmentCompiler | None = None
        self._stopped = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spmdx compiler", daemon=True)
        self._thread.start()
        if waits:
            try:
                self.await_ready()
            except BaseException:  # Ctrl-C: nobody has this object, so nobody else could stop it
                self.stop()
                raise

    def stop(self) -> None:
        """No segment is compiled any more; kernels that are there go as well."""
        self._stopped.set()
        self._worker.stop()
        if self.core is not None:
            self.core.stop()
        self._thread.join(_TO_END)  # a compiler's own code may hang in the program's process, too
        self.core = None  # which holds this object
        self._changed()

    def await_ready(self) -> None:
        """Until it has said what it takes, or that it takes nothing."""
        self._ready.wait()

    def left(self) -> list[tuple[str, str]]:
        """Ops that it would not take in some use, and why."""
        return [] if self.core is None else self.core.left()

    def waiting(self) -> int:
        """How many segments are not compiled yet; none of one that was stopped."""
        over = self.core is None or self._stopped.is_set() or not self._thread.is_alive()
        return 0 if over or self.core is None else self.core.waiting()

    def waiting_after(self, seconds: float) -> int:
        """The same, a moment later."""
        self._stopped.wait(seconds)
        return self.waiting()

    def _run(self) -> None:
        try:
            core = self._begin()
        except Exception as error:  # of a compiler: the program goes on without
            self.failure = str(error)
            if not self._stopped.is_set():
                self._tell(f"it takes no op: {error}", "")
            return
        finally:
            self._ready.set()
        try:
            while not self._stopped.is_set():
                request = core.take(0.5)
                if request is not None:
                    self._make(core, *request)
        finally:
            core.stop()  # whatever ended the thread: nobody waits for it

    def _begin(self) -> _C.SegmentCompiler:
        self.ops = frozenset(self._worker.ops())
        core = _C.SegmentCompiler(
            set(self.ops),
            set(self.compiler.ops_with_params),
            list(self.compiler.dtypes),
            self.compiler.in_place,
            self._checks,
            self._waits,
            self._refused,
        )
        if not self._stopped.is_set():
            self.core = core
            self._changed()
        return core

    def _make(self, core: _C.SegmentCompiler, text: str, row: dict[str, Any], source: str) -> None:
        began = time.perf_counter_ns()
        outputs = [
            (dtype, tuple(shape), over)
            for (_, (dtype, shape, _)), over in zip(row["outputs"], row["over"], strict=True)
        ]
        try:
            runs = _what_runs(self._made(Segment.of_row(text, row), row))
            core.deliver(text, runs, outputs, time.perf_counter_ns() - began)
            return
        except NotTaken as error:
            places = range(len(row["nodes"]))
            left = [(place, why) for place, why in error.reasons.items() if place in places]
            if left:
                return core.leave(text, left)
            why = f"no op of it is named: {of_error(error)}"
        except BaseException as error:  # of a compiler: the segment runs without it
            why = str(error) if isinstance(error, CompilerFailed) else of_error(error)
        if not self._stopped.is_set():
            self._tell(f"it has not compiled a segment of {len(row['nodes'])} ops: {why}", source)
        core.refuse(text, why, time.perf_counter_ns() - began)  # whoever waits for it goes on

    def _made(self, segment: Segment, row: dict[str, Any]) -> Any:
        folder = cache.folder_of(self.compiler, segment)
        if cache.is_whole(folder):
            try:
                return self.compiler.load(segment, folder)
            except Exception:  # of a library of another machine, say: it is made anew
                cache.throw_away(folder)
        with cache.writing(folder) as draft:
            self._worker.compile(segment, row, draft)
        return self.compiler.load(segment, folder)

    def _refused(self, source: str, text: str, why: str) -> None:
        ops = sum(" = " in line and "input" not in line for line in text.splitlines())
        why = one_line(why)
        self._tell(f"a segment of {ops} ops is run by PyTorch's kernels: {why}", source)

    def _tell(self, what: str, source: str) -> None:
        """In the program's own thread: no other may raise what a filter makes of a warning."""
        led = f"{source}: " if source else ""
        _C.warn_later(
            f"{led}compiler {self.compiler.name!r}: {what.rstrip('.')}. The program goes on "
            "without. See spmdx.explain().segments."
        )
