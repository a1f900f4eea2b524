# SPDX-License-Identifier: Apache-2.0
"""torch_xla.debug.metrics: counters and metrics under torch_xla's names."""

from typing import Any

from spmdx import debug
from spmdx._xla.device import counters as _counters
from spmdx._xla.device.absent import absent

Samples = tuple[int, float, list[tuple[float, float]]]


def counter_names() -> list[str]:
    """The names of counters that are not 0."""
    return list(_counters.counters())


def counter_value(name: str) -> int | None:
    """The value of a counter; None if nothing was counted.

    Args:
        name: as torch_xla names it.

    Returns:
        A number, or None.

    Example:
        >>> from spmdx.torch_xla.debug import metrics
        >>> metrics.counter_value("NoSuchCounter") is None
        True
    """
    return _counters.counters().get(name)


def metric_names() -> list[str]:
    """The names of metrics that have samples."""
    return list(_counters.metrics())


def metric_data(name: str) -> Samples | None:
    """Number of samples, their sum, and pairs of time and value; None if there are none.

    Args:
        name: as torch_xla names it.

    Returns:
        The three, or None.
    """
    return _counters.metrics().get(name)


def clear_counters() -> None:
    """Counts from 0 again."""
    _counters.clear(metrics=False)


def clear_metrics() -> None:
    """Forgets all samples."""
    _counters.clear(counters=False)


def clear_all() -> None:
    """Counts from 0 again, and forgets all samples."""
    _counters.clear()


def executed_fallback_ops() -> list[str]:
    """The ops that were computed on whole tensors, for want of a sharding rule."""
    return [name.replace(".", "::", 1) for name in debug.fallbacks()]


def metrics_report() -> str:
    """All metrics and counters as text."""
    return short_metrics_report()


def short_metrics_report(
    counter_names: list[str] | None = None, metric_names: list[str] | None = None
) -> str:
    """Metrics and counters as text.

    Args:
        counter_names: the counters to show; None shows all.
        metric_names: the metrics to show; None shows all.

    Returns:
        Lines as torch_xla writes them.
    """
    lines: list[Any] = []
    for name, (n, total, _) in _counters.metrics().items():
        if metric_names is None or name in metric_names:
            shown = _counters.shown(name, total)
            lines += [f"Metric: {name}", f"  TotalSamples: {n}", f"  Accumulator: {shown}"]
    for name, value in _counters.counters().items():
        if counter_names is None or name in counter_names:
            lines += [f"Counter: {name}", f"  Value: {value}"]
    return "\n".join(lines) + "\n"


__getattr__ = absent(
    "torch_xla.debug.metrics",
    {"save_metrics": "Write metrics_report() to a file."},
)
