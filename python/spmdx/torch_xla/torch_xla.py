# SPDX-License-Identifier: Apache-2.0
"""torch_xla.torch_xla: devices, steps, seeds and launching."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from spmdx import debug
from spmdx import manual_seed as _manual_seed
from spmdx._xla.device.absent import refuse
from spmdx._xla.device.steps import run_closures, sync_device
from spmdx.torch_xla import runtime


def device(index: int | None = None) -> torch.device:
    """The logical device ``xla:0``.

    Args:
        index: 0 or None.

    Returns:
        A ``torch.device``.

    Raises:
        IndexError: another index.

    Example:
        >>> import spmdx.torch_xla as torch_xla
        >>> torch_xla.device()
        device(type='xla', index=0)
    """
    if index not in (None, 0):
        raise IndexError(f"Device index {index} is out of range: there is one logical device.")
    return torch.device("xla", 0)


def devices() -> list[torch.device]:
    """The logical devices: one."""
    return [device()]


def real_devices() -> list[str]:
    """The name of the hardware below the logical device."""
    return [f"{runtime.device_type()}:0"]


def device_count() -> int:
    """The number of logical devices: 1."""
    return 1


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """End the step: what was recorded is planned and runs, in the background.

    Args:
        wait: whether to wait until it has run.
        reset_scope: kept for programs that give it; there is no scope.
    """
    sync_device(wait)
    run_closures()


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool | None = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: dict[str, Any] | None = None,
) -> Any:
    """Let a function, or a block, be a step of its own.

    Args:
        f: a function; None gives a block, and a decorator.
        full_graph: whether a read of a value inside is an error.
        name: kept for programs that give it.
        max_different_graphs: more plans than these are an error.
        custom_compile_options: must be empty: there is no XLA that takes them.

    Returns:
        The function, wrapped; or something for ``with``.

    Raises:
        NotImplementedError: options are given.
        RuntimeError: later, when a value was read inside, or too many plans were made.
    """
    if custom_compile_options:
        refuse("custom_compile_options", "Leave them out: there is no XLA compiler here.")
    block = functools.partial(_own_step, bool(full_graph), max_different_graphs, [0])
    if f is None:
        return _Block(block)

    @functools.wraps(f)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        with block():
            return f(*args, **kwargs)

    return compiled


class _Block(contextlib.ContextDecorator):
    """A block that is a step of its own; also decorates functions."""

    def __init__(self, enter: Callable[[], Any]):
        self._enter = enter
        self._open: list[Any] = []

    def __enter__(self) -> None:
        block = self._enter()
        block.__enter__()
        self._open.append(block)

    def __exit__(self, *error: Any) -> Any:
        return self._open.pop().__exit__(*error)

    def _recreate_cm(self) -> Any:
        return self


@contextlib.contextmanager
def _own_step(full_graph: bool, most: int | None, made: list[int]) -> Iterator[None]:
    sync()
    begun = debug.counters()
    yield
    inside = debug.counters()
    sync()
    after = debug.counters()
    if full_graph and inside["implicit_syncs"] > begun["implicit_syncs"]:
        raise RuntimeError(
            "a value was read inside of torch_xla.compile(full_graph=True). Expected one step. "
            "Read it after the function has returned."
        )
    made[0] += after["plans_compiled"] - begun["plans_compiled"]
    if most is not None and made[0] > most:
        raise RuntimeError(
            f"torch_xla.compile made {made[0]} plans, more than max_different_graphs={most}. "
            "Keep shapes and Python numbers of the function the same from call to call."
        )


def step() -> Any:
    """A block that is a step of its own; see :func:`compile`."""
    return compile()


def manual_seed(seed: int, device: Any = None) -> None:
    """Set the seed of the device.

    Args:
        seed: any int.
        device: kept for programs that give it; there is one.
    """
    _manual_seed(seed)


def launch(fn: Callable[..., Any], args: tuple = (), **options: Any) -> None:
    """Run ``fn`` in this process, as process 0 of one.

    Args:
        fn: called with the index of the process, and ``args``.
        args: what follows the index.
        **options: ``start_method`` and ``debug_single_process`` are taken; there is one process.

    Raises:
        NotImplementedError: after ``use_spmd``: one program drives all devices.
    """
    if runtime.is_spmd():
        refuse("torch_xla.launch", "After use_spmd() one program drives all devices: call fn.")
    fn(0, *args)


def set_custom_compile_options(options: dict[str, Any]) -> None:
    """Raise NotImplementedError: there is no XLA compiler that takes options.

    Args:
        options: those of XLA.
    """
    if options:
        refuse("set_custom_compile_options", "Leave it out: there is no XLA compiler here.")
