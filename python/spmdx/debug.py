# SPDX-License-Identifier: Apache-2.0
"""Seeing: what a plan decided, what it moves, and counters of what ran."""

from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import require_spmdx
from spmdx._report.diff import explain_diff
from spmdx._report.held import local_bytes
from spmdx._report.load import DeviceLoad, LoadReport
from spmdx._report.memory import HeldReport, MemoryReport, memory_report
from spmdx._report.placement import placement_report
from spmdx._report.report import (
    BalanceReport,
    CollectiveReport,
    FallbackReport,
    Report,
    SpanReport,
    ValueReport,
)
from spmdx._report.segments import segments_report
from spmdx._report.stages import pipeline_report
from spmdx.errors import ShardingError, naming


def explain(tensor: torch.Tensor | None = None) -> Report:
    """What the last compiled program does, or what is pending for a tensor; runs nothing.

    Args:
        tensor: plan what is traced but not run yet, for this tensor on device "spmdx"; None
            reports the program that was compiled last.

    Returns:
        Shardings with their provenance, and every collective with bytes, cause and line.

    Raises:
        ShardingError: nothing was compiled yet, or the traced program cannot be planned.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> x = spmdx.mark_sharding(torch.ones(64, 4).to("spmdx"), mesh, ("data", None))
        >>> spmdx.mark_step()
        >>> total = x.sum()
        >>> report = spmdx.explain(total)
        >>> report.count("all_reduce"), report.collectives[0].axes
        (1, ('data',))
        >>> report.collectives[0].bytes  # 2 * 4 bytes * 7/8
        7
    """
    with naming("explain"):
        if tensor is not None:
            require_spmdx(tensor)
        row = _C.report_last() if tensor is None else _C.report_pending(tensor)
        if row is None and tensor is None:
            raise ShardingError(
                "no program was compiled yet. Expected one that ran. Call spmdx.mark_step() "
                "first, or explain a tensor that is traced."
            )
    return Report(None, [], [], [], 0) if row is None else _report(row)


def _report(row: dict[str, Any]) -> Report:
    """What the core reports as plain dicts."""
    return Report(
        row["mesh"],
        [CollectiveReport(**{**c, "axes": tuple(c["axes"])}) for c in row["collectives"]],
        [ValueReport(**v) for v in row["values"]],
        [FallbackReport(**f) for f in row["fallbacks"]],
        row["peak_bytes"],
        [SpanReport(**s) for s in row["timeline"]],
        row["flops"],
        row["whole_flops"],
        [BalanceReport(**b) for b in row["balance"]],
        None if row["pipeline"] is None else pipeline_report(row["pipeline"]),
        placement_report(row["placement"]),
        memory_report(row["memory"]),
        LoadReport([DeviceLoad(**device) for device in row["load"]]),
        row["step_ns"],
        segments_report(row["segments"]),
        row["plan"],
    )


def counters() -> dict[str, int]:
    """What was recorded, planned and run since the start or :func:`reset_counters`.

    Returns:
        ``ops_recorded``, ``steps``, ``steps_of_readers`` (that ran on the thread that waited for
        them), ``plans_compiled``, ``plans_searched`` (those of them whose layouts were not taken
        from the plan of a program of other sizes), ``plan_cache_hits``, ``implicit_syncs``,
        ``collectives``, ``native_collectives`` (calls of this process of the backend's own),
        ``wire_bytes`` (received by a device), ``fallback_ops``; how many entries tables hold now:
        ``calls_kept``, ``plans_kept``, ``reshard_plans_kept``, ``shardings_kept``; and bytes that
        are held now: ``plan_bytes_kept`` (by plans, estimated), ``trace_bytes`` (by inputs that
        only the step being traced still needs).

    Example:
        >>> import spmdx
        >>> sorted(spmdx.debug.counters())[:3]
        ['calls_kept', 'collectives', 'fallback_ops']
    """
    return dict(_C.counters())


def fallbacks() -> dict[str, int]:
    """How often ops without a rule ran since the start or :func:`reset_counters`, by name.

    Example:
        >>> import torch, spmdx
        >>> spmdx.sync(wait=True)
        >>> spmdx.debug.reset_counters()
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> x = spmdx.mark_sharding(torch.ones(8, 3, 3).to("spmdx"), mesh, ("data", None, None))
        >>> y = torch.linalg.matrix_exp(x).cpu()
        >>> spmdx.debug.fallbacks()
        {'aten.linalg_matrix_exp': 1}
    """
    return dict(_C.fallback_counts())


def reset_counters() -> None:
    """Set every counter to 0.

    Example:
        >>> import spmdx
        >>> spmdx.sync(wait=True)
        >>> spmdx.debug.reset_counters()
        >>> spmdx.debug.counters()["steps"]
        0
    """
    _C.reset_counters()


def dump() -> str:
    """The last compiled program as text, in the language of graph dumps.

    Example:
        >>> import spmdx
        >>> isinstance(spmdx.debug.dump(), str)
        True
    """
    return _C.dump_last()


__all__ = [
    "BalanceReport",
    "CollectiveReport",
    "FallbackReport",
    "HeldReport",
    "DeviceLoad",
    "LoadReport",
    "MemoryReport",
    "Report",
    "SpanReport",
    "ValueReport",
    "counters",
    "dump",
    "explain",
    "explain_diff",
    "fallbacks",
    "local_bytes",
    "reset_counters",
]
