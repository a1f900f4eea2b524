# SPDX-License-Identifier: Apache-2.0
"""Seeing: what a plan decided, what it moves, and counters of what ran."""

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import rich.console
import rich.table
import rich.text
import torch

from spmdx import _C
from spmdx.errors import ShardingError, naming


@dataclasses.dataclass(frozen=True)
class CollectiveReport:
    """One collective of a plan.

    Attributes:
        kind: ``"all_reduce"``, ``"all_gather"``, ``"reduce_scatter"``, ``"all_to_all"``,
            ``"collective_permute"`` or ``"send_recv"``.
        axes: names of the mesh axes it runs over.
        group_size: the number of devices of a group.
        dtype: as ``"f32"``.
        bytes: what one device receives over the wire.
        count: how often it runs in a step.
        cause: the value, the op and the reason.
        source: the user's line, as ``"train.py:41"``.
    """

    kind: str
    axes: tuple[str, ...]
    group_size: int
    dtype: str
    bytes: int
    count: int
    cause: str
    source: str


@dataclasses.dataclass(frozen=True)
class ValueReport:
    """One value of a plan: the op that makes it, its type, its sharding and why it has it."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    sharding: str
    provenance: str
    source: str


@dataclasses.dataclass(frozen=True)
class FallbackReport:
    """An op without a rule: its operands are gathered (``bytes`` a device) and it is replicated."""

    op: str
    bytes: int
    source: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What a plan decided; ``print`` draws it as tables.

    Attributes:
        mesh: as ``"Mesh(data=4, model=2)"``; None where nothing is annotated.
        collectives: all that crosses the wire, in program order.
        values: inputs and results of ops, in program order.
        fallbacks: ops without a rule.
        peak_bytes: of live tensors, a device, predicted.
        flops: floating-point operations of the device that has most to do.
        whole_flops: those of the same ops on one device; a share of 1 / devices is an even one.
    """

    mesh: str | None
    collectives: list[CollectiveReport]
    values: list[ValueReport]
    fallbacks: list[FallbackReport]
    peak_bytes: int
    flops: int = 0
    whole_flops: int = 0

    @property
    def wire_bytes(self) -> int:
        """What one device receives in a step, in bytes."""
        return sum(c.bytes * c.count for c in self.collectives)

    def count(self, kind: str) -> int:
        """How many collectives of this kind a step runs.

        Args:
            kind: as in :class:`CollectiveReport`.
        """
        return sum(c.count for c in self.collectives if c.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain values, for JSON."""
        return {**dataclasses.asdict(self), "wire_bytes": self.wire_bytes}

    def __rich_console__(self, console: rich.console.Console, options: Any):
        yield (
            f"{self.mesh or 'no mesh'}: {sum(c.count for c in self.collectives)} collectives, "
            f"{self.wire_bytes:,} bytes over the wire and {self.peak_bytes:,} bytes of memory "
            "a device"
        )
        yield _table("Collectives", CollectiveReport, self.collectives)
        yield _table("Values", ValueReport, self.values)
        if self.fallbacks:
            yield _table("Ops without a rule", FallbackReport, self.fallbacks)

    def __str__(self) -> str:
        buffer = io.StringIO()
        rich.console.Console(file=buffer, width=160, color_system=None).print(self)
        return buffer.getvalue().rstrip()


def _cell(value: Any) -> rich.text.Text:

    text = f"{value:,}" if isinstance(value, int) else value
    return rich.text.Text(", ".join(map(str, text)) if isinstance(text, tuple) else str(text))


def _table(title: str, row_type: type, rows: Sequence[Any]) -> rich.table.Table:
    table = rich.table.Table(title=title, title_justify="left")
    names = [field.name for field in dataclasses.fields(row_type)]
    for name in names:
        number = name in ("bytes", "count", "group_size")
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(getattr(row, name)) for name in names))
    return table


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
        row = _C.report_last() if tensor is None else _C.report_pending(tensor)
        if row is None and tensor is None:
            raise ShardingError(
                "no program was compiled yet. Expected one that ran. Call spmdx.mark_step() "
                "first, or explain a tensor that is traced."
            )
    if row is None:
        return Report(None, [], [], [], 0)
    return Report(
        row["mesh"],
        [CollectiveReport(**{**c, "axes": tuple(c["axes"])}) for c in row["collectives"]],
        [ValueReport(**v) for v in row["values"]],
        [FallbackReport(**f) for f in row["fallbacks"]],
        row["peak_bytes"],
        row["flops"],
        row["whole_flops"],
    )


def counters() -> dict[str, int]:
    """What was recorded, planned and run since the start or :func:`reset_counters`.

    Returns:
        ``ops_recorded``, ``steps``, ``plans_compiled``, ``plan_cache_hits``, ``implicit_syncs``,
        ``collectives``, ``wire_bytes`` (received by a device), ``fallback_ops``.

    Example:
        >>> import spmdx
        >>> sorted(spmdx.debug.counters())[:3]
        ['collectives', 'fallback_ops', 'implicit_syncs']
    """
    return dict(_C.counters())


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
    "CollectiveReport",
    "FallbackReport",
    "Report",
    "ValueReport",
    "counters",
    "dump",
    "explain",
    "reset_counters",
]
