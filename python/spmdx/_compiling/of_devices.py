# SPDX-License-Identifier: Apache-2.0
"""The compiler of each device: that of its kind, or the one that is in force for all others."""

import threading
from collections.abc import Mapping, Sequence

import spmdx._C as _C
from spmdx._compiling.background import Background
from spmdx._segments.compiler import Compiler

_lock = threading.Lock()  # a leaf: no compiler is waited for within it
_default: Background | None = None
_of_device: tuple[str | None, ...] = ()
_of_name: dict[str, Background] = {}


def use_default(background: Background | None) -> None:
    """Of devices that have none of their own."""
    global _default
    with _lock:
        _default = background
    publish()


def use_own(of_device: Sequence[str | None], of_name: Mapping[str, Background]) -> None:
    """By device, the name of its own compiler; None: it has none."""
    global _of_device, _of_name
    with _lock:
        _of_device, _of_name = tuple(of_device), dict(of_name)
    publish()


def default() -> Background | None:
    """Of devices that have none of their own."""
    with _lock:
        return _default


def own() -> dict[str, Background]:
    """Those of devices that have their own, by name."""
    with _lock:
        return dict(_of_name)


def every() -> list[Background]:
    """All of them, each once."""
    with _lock:
        return [*([] if _default is None else [_default]), *_of_name.values()]


def compiler_of(device: int) -> Compiler | None:
    """What compiles for this device."""
    with _lock:
        own = _of_device[device] if device < len(_of_device) else None
        background = _default if own is None else _of_name[own]
        return None if background is None else background.compiler


def publish() -> None:
    """Tell the core; whenever one of them begins or ends, too."""
    with _lock:
        names = list(_of_name)
        cores = [None if _default is None else _default.core]
        cores += [_of_name[name].core for name in names]
        of_device = [0 if name is None else 1 + names.index(name) for name in _of_device]
        _C.set_compilers(cores, of_device)
