# SPDX-License-Identifier: Apache-2.0
"""The compiler in force, and those that are installed."""

import atexit
import contextlib
import importlib.metadata
import os
import threading

import spmdx._C as _C
from spmdx._compiling.background import Background
from spmdx._segments.compiler import Compiler
from spmdx._targets.hls import Hls
from spmdx._targets.inductor import Inductor
from spmdx._targets.iree import Iree
from spmdx._targets.onnxruntime import OnnxRuntime
from spmdx._targets.xla import Xla
from spmdx._world import hardware, processes
from spmdx.errors import ShardingError, naming

GROUP = "spmdx.compilers"
_OWN: dict[str, type[Compiler]] = {
    each.name: each for each in (Hls, Inductor, Iree, OnnxRuntime, Xla)
}
_lock = threading.Lock()
_background: Background | None = None
_owner = os.getpid()


def installed() -> list[str]:
    """Names of compilers that :func:`spmdx.set_compiler` knows.

    Returns:
        spmdx's own and those of packages, sorted.

    Example:
        >>> import spmdx
        >>> "inductor" in spmdx.compilers.installed()
        True
    """
    return sorted({*_OWN, *(entry.name for entry in importlib.metadata.entry_points(group=GROUP))})


def set_compiler(
    compiler: Compiler | str | None, *, check: bool = True, compile_now: bool = False
) -> None:
    """Have the ops of each device compiled, many as one kernel, while the program runs.

    Steps begin at once, with PyTorch's kernels. What lies between two collectives is compiled by a
    process of its own, and takes over between two steps; it is kept on disk for the next run. What
    a compiler does not take, or gets wrong, stays with PyTorch's kernels.

    Args:
        compiler: the name of one of :func:`spmdx.compilers.installed`, or an object of a subclass
            of :class:`spmdx.compilers.Compiler`; None for none. ``SPMDX_COMPILER`` names the first.
        check: compare a kernel with PyTorch's when it runs for the first time. One that gives other
            numbers than rounding explains is not used again, with a warning.
        compile_now: let a step wait until all that it runs is compiled. Kernels differ in rounding,
            so that then alone runs are equal bit by bit.

    Raises:
        ShardingError: there is no such compiler, it is no compiler, the shards lie on another
            device than the CPU, or the program has several processes, which would take over in
            different steps.

    Example:
        >>> import spmdx
        >>> spmdx.set_compiler(None)
    """
    global _background, _owner
    with naming("set_compiler"):
        found = None if compiler is None else _found(compiler)
        seconds = 0.0 if found is None else _timeout()
        if found is not None and hardware.kind() != "cpu":
            raise ShardingError(
                f"the shards lie on a device of kind {hardware.kind()!r}. Expected 'cpu', which is "
                "all that kernels of compilers are for. Call spmdx.set_compiler(None)."
            )
        if found is not None and processes.process_count() > 1:
            raise ShardingError(
                f"the program has {processes.process_count()} processes, which would use other "
                "kernels in other steps, and round differently. Expected one process. Call "
                "spmdx.set_compiler(None)."
            )
    atexit.unregister(_end)
    atexit.register(_end)  # the last one is the first: steps that others wait for may wait for this
    with _lock:
        if _background is not None:
            _background.stop()
        _background, _owner = None, os.getpid()
        if found is not None:
            _background = Background(found, check, compile_now, seconds)


def get_compiler() -> Compiler | None:
    """The compiler in force, or None.

    Example:
        >>> import spmdx
        >>> spmdx.compilers.get_compiler() is None
        True
    """
    with _lock:
        return None if _background is None else _background.compiler


def left() -> list[tuple[str, str]]:
    """Ops that the compiler in force would not take in some use, and why.

    PyTorch's kernels run them, and segments are cut around them.

    Returns:
        pairs of an op and a reason, one for each use, which differs in its shapes or arguments.

    Example:
        >>> import spmdx
        >>> spmdx.compilers.left()
        []
    """
    with _lock:
        return [] if _background is None else _background.left()


def wait() -> int:
    """Wait until all segments of steps so far are compiled, with a bar of progress.

    Returns:
        how many segments had to be waited for.

    Raises:
        ShardingError: no compiler is in force.

    Example:
        >>> import spmdx
        >>> spmdx.set_compiler(None)
    """
    with _lock:
        background = _background
    with naming("compilers.wait"):
        if background is None:
            raise ShardingError(
                "no compiler is in force. Expected one. Call spmdx.set_compiler('inductor')."
            )
    import rich.progress

    _C.flush(awaited=True)
    _C.wait()
    with rich.progress.Progress(transient=True) as progress:
        background.await_ready()
        _C.ask_compiler()
        total = background.waiting()
        task = progress.add_task(f"{background.compiler.name}: segments", total=total)
        while left := background.waiting_after(0.05):
            progress.update(task, completed=total - left)
    _C.warn_of_events()
    return total


def _found(compiler: Compiler | str) -> Compiler:
    if isinstance(compiler, Compiler):
        return compiler
    if not isinstance(compiler, str):
        raise ShardingError(
            f"the compiler is a {type(compiler).__name__}. Expected a name, a "
            "spmdx.compilers.Compiler or None. Write 'inductor'."
        )
    if compiler in _OWN:
        return _OWN[compiler]()
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.name == compiler:
            return entry.load()()
    raise ShardingError(
        f"no compiler is called {compiler!r}. Expected one of {', '.join(installed())}. Install "
        f"the package that has it among its entry points of the group {GROUP!r}."
    )


def _timeout() -> float:
    told = os.environ.get("SPMDX_COMPILE_TIMEOUT", "600")
    with contextlib.suppress(ValueError):
        if 0 < float(told) < float("inf"):
            return float(told)
    raise ShardingError(f"SPMDX_COMPILE_TIMEOUT is {told!r}. Expected seconds above 0. Write 600.")


def start() -> None:
    """What ``SPMDX_COMPILER`` names is in force from the start of the program."""
    told = os.environ.get("SPMDX_COMPILER", "")
    if told:
        set_compiler(told)


def _end() -> None:
    if os.getpid() != _owner:  # a child of fork: the compiler's process is the parent's
        return
    with _lock:
        if _background is not None:
            _background.stop()
    _C.warn_of_events()
