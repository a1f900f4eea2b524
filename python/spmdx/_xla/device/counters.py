# SPDX-License-Identifier: Apache-2.0
"""Counters and timers under torch_xla's names: the device's own, and those of this package."""

import time
from collections import Counter, defaultdict
from collections.abc import Hashable

from spmdx import debug

# By torch_xla's name, that of spmdx.debug.counters().
_OF_DEVICE = {
    "ExecuteReplicated": "steps",
    "UncachedCompile": "plans_compiled",
    "CachedCompile": "plan_cache_hits",
}
_TIMES_OF_DEVICE = {"ExecuteReplicatedTime": "steps", "CompileTime": "plans_compiled"}
_GATHERS = "CompileTime"  # these plans count among those of programs
_BYTES = {"OutboundData", "InboundData"}  # metrics of bytes
_NUMBERS = {"InputOutputAliasCount"}  # of numbers; all others are of nanoseconds

_counts: Counter[str] = Counter()
_samples: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
_since: dict[str, int] = {}  # the device's counters when they were cleared
_auto = {"on": False}  # whether auto_policy has chosen shardings
_gathers: set[Hashable] = set()  # the layouts of tensors that were read


def count(name: str, by: int = 1) -> None:
    """Adds to a counter."""
    _counts[name] += by


def sample(name: str, value: float) -> None:
    """Adds a value to a metric: nanoseconds, or bytes."""
    _samples[name].append((time.time(), value))


def choose_shardings() -> None:
    """Notes that shardings are chosen that nobody wrote: plans made from here on count so."""
    _auto["on"] = True


def shardings_are_chosen() -> bool:
    """Whether they are."""
    return _auto["on"]


def gathered(layout: Hashable) -> None:
    """Counts a read of a tensor that is cut: the first one of a layout is a plan of its own."""
    if layout not in _gathers:
        _gathers.add(layout)
        _samples[_GATHERS].append((time.time(), 0.0))


def _of_device(key: str) -> int:
    return debug.counters()[key] - _since.get(key, 0)


def counters() -> dict[str, int]:
    """Those that are not 0, by torch_xla's names; and fallbacks, by the op."""
    found = {name: _of_device(key) for name, key in _OF_DEVICE.items()}
    found.update(_counts)
    found.update({name.replace(".", "::", 1): n for name, n in debug.fallbacks().items()})
    return {name: n for name, n in found.items() if n}


def metrics() -> dict[str, tuple[int, float, list[tuple[float, float]]]]:
    """Number of samples, their sum, and the samples as (time, value)."""
    found: dict[str, tuple[int, float, list[tuple[float, float]]]] = {
        name: (len(rows), sum(value for _, value in rows), list(rows))
        for name, rows in _samples.items()
    }
    for name, key in _TIMES_OF_DEVICE.items():
        n = _of_device(key)
        if n:  # the device counts these and takes no times
            before, total, rows = found.get(name, (0, 0.0, []))
            found[name] = (before + n, total, rows)
    return found


def shown(name: str, total: float) -> str:
    """The sum of a metric's values as text, with their unit."""
    if name in _NUMBERS:
        return f"{total:.0f}"
    return f"{total:.0f}B" if name in _BYTES else f"{total / 1e6:.3f}ms"


def clear(counters: bool = True, metrics: bool = True) -> None:
    """Starts counting from 0."""
    if counters:
        _counts.clear()
    if metrics:
        _samples.clear()
    _since.update(debug.counters())
