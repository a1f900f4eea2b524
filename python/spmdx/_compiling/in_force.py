# SPDX-License-Identifier: Apache-2.0
"""The compiler in force, and those that are installed."""

import atexit
import contextlib
import importlib.metadata
import os
import threading
from collections.abc import Sequence

import spmdx._C as _C
from spmdx._compiling import of_devices
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
_lock = threading.Lock()  # of those that begin and end compilers
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
    with naming("set_compiler"):
        found = None if compiler is None else _found(compiler)
        seconds = 0.0 if found is None else _timeout()
        if found is not None:
            _require_cpu_and_one_process("Call spmdx.set_compiler(None).")
    with _lock:
        _own_from_now_on()
        if (before := of_devices.default()) is not None:
            before.stop()
        of_devices.use_default(None)
        if found is not None:
            begun = Background(found, check, compile_now, seconds, of_devices.publish)
            of_devices.use_default(begun)


def set_own_compilers(
    of_device: Sequence[str | None], *, check: bool = True, compile_now: bool = False
) -> None:
    """Have devices whose compiler is named compiled by that one, as :func:`set_compiler` does.

    Args:
        of_device: by the device's number; None: what :func:`set_compiler` says.
    """
    names = list(dict.fromkeys(name for name in of_device if name is not None))
    found = {name: _found(name) for name in names}
    seconds = _timeout() if found else 0.0
    if found:
        _require_cpu_and_one_process("Name devices of kind 'cpu' alone.")
    with _lock:
        _own_from_now_on()
        for before in of_devices.own().values():
            before.stop()
        of_devices.use_own((), {})
        begun: dict[str, Background] = {}
        try:
            for name, each in found.items():
                begun[name] = Background(each, check, compile_now, seconds, of_devices.publish)
        except BaseException:  # Ctrl-C
            for background in begun.values():
                background.stop()
            raise
        of_devices.use_own(of_device, begun)


def _own_from_now_on() -> None:
    global _owner
    atexit.unregister(_end)
    atexit.register(_end)  # the last one is the first: steps that others wait for may wait for this
    _owner = os.getpid()


def _require_cpu_and_one_process(remedy: str) -> None:
    if hardware.kind() != "cpu":
        raise ShardingError(
            f"the shards lie on a device of kind {hardware.kind()!r}. Expected 'cpu', which is "
            f"all that kernels of compilers are for. {remedy}"
        )
    if processes.process_count() > 1:
        raise ShardingError(
            f"the program has {processes.process_count()} processes, which would use other "
            f"kernels in other steps, and round differently. Expected one process. {remedy}"
        )


def get_compiler() -> Compiler | None:
    """The compiler of devices that have none of their own, or None.

    Example:
        >>> import spmdx
        >>> spmdx.compilers.get_compiler() is None
        True
    """
    found = of_devices.default()
    return None if found is None else found.compiler


def left() -> list[tuple[str, str]]:
    """Ops that the compilers in force would not take in some use, and why.

    PyTorch's kernels run them, and segments are cut around them.

    Returns:
        pairs of an op and a reason, one for each use, which differs in its shapes or arguments.

    Example:
        >>> import spmdx
        >>> spmdx.compilers.left()
        []
    """
    return [row for each in of_devices.every() for row in each.left()]


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
    every = of_devices.every()
    with naming("compilers.wait"):
        if not every:
            raise ShardingError(
                "no compiler is in force. Expected one. Call spmdx.set_compiler('inductor')."
            )
    import rich.progress

    _C.flush(awaited=True)
    _C.wait()
    with rich.progress.Progress(transient=True) as progress:
        for each in every:
            each.await_ready()
        _C.ask_compiler()
        total = 0
        for each in every:
            waiting = each.waiting()
            total += waiting
            task = progress.add_task(f"{each.compiler.name}: segments", total=waiting)
            while left := each.waiting_after(0.05):
                progress.update(task, completed=waiting - left)
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
        for each in of_devices.every():
            each.stop()
    _C.warn_of_events()
