# SPDX-License-Identifier: Apache-2.0
"""What changed between two reports: which collectives came, went or grew, which shardings moved."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from spmdx._report.report import CollectiveReport, Drawn, Report, ValueReport
from spmdx.errors import ShardingError, naming

if TYPE_CHECKING:  # what draws is imported when it draws
    import rich.console
    import rich.table
    import rich.text

Row = TypeVar("Row")
Pair = tuple[Row | None, Row | None]


@dataclasses.dataclass(frozen=True)
class CollectiveChange:
    """A collective that is new (``before`` is None), gone (``after`` is None) or changed."""

    before: CollectiveReport | None
    after: CollectiveReport | None

    @property
    def what(self) -> str:
        """``"new"``, ``"gone"`` or ``"changed"``."""
        return "new" if self.before is None else "gone" if self.after is None else "changed"


@dataclasses.dataclass(frozen=True)
class ValueChange:
    """A value that has another sharding now, with the reason for each."""

    before: ValueReport
    after: ValueReport


@dataclasses.dataclass(frozen=True, repr=False)
class ReportDiff(Drawn):
    """What one more annotation changed; ``print`` draws it as tables.

    Attributes:
        before: the report before.
        after: the report after.
        collectives: those that are new, gone or changed, in program order.
        values: those whose sharding is another one, in program order.
    """

    before: Report
    after: Report
    collectives: list[CollectiveChange]
    values: list[ValueChange]

    def __bool__(self) -> bool:
        return bool(self.collectives or self.values)

    @property
    def wire_bytes(self) -> int:
        """How many bytes a device receives more than before; negative where it is less."""
        return self.after.wire_bytes - self.before.wire_bytes

    @property
    def peak_bytes(self) -> int:
        """How many bytes of memory a device needs more than before, predicted."""
        return self.after.peak_bytes - self.before.peak_bytes

    def to_dict(self) -> dict[str, Any]:
        """The changes in plain values, for JSON."""
        return {
            "collectives": [{"what": c.what, **dataclasses.asdict(c)} for c in self.collectives],
            "values": [dataclasses.asdict(v) for v in self.values],
            "wire_bytes": self.wire_bytes,
            "peak_bytes": self.peak_bytes,
        }

    def __rich_console__(
        self, console: rich.console.Console, options: Any
    ) -> rich.console.RenderResult:
        yield _line("collectives", *(sum(c.count for c in r.collectives) for r in self._both()))
        yield _line("bytes over the wire", *(r.wire_bytes for r in self._both()))
        yield _line("bytes of memory", *(r.peak_bytes for r in self._both()))
        yield _line("ns a step, predicted", *(r.step_ns for r in self._both()))
        if self.collectives:
            yield _collectives(self.collectives)
        if self.values:
            yield _values(self.values)
        if not self:
            yield "The plans are the same."

    def _both(self) -> tuple[Report, Report]:
        return self.before, self.after


def _line(what: str, before: int, after: int) -> str:
    change = f" ({after - before:+,})" if after != before else ""
    return f"{what}: {before:,} → {after:,}{change}"


def _table(title: str, names: Sequence[str]) -> rich.table.Table:
    import rich.table

    drawn = rich.table.Table(title=title, title_justify="left")
    for name in names:
        drawn.add_column(name, justify="right" if name == "bytes" else "left", overflow="fold")
    return drawn


def _arrow(before: Any, after: Any) -> rich.text.Text:
    import rich.text

    sides = [str(side) for side in (before, after) if side is not None]
    return rich.text.Text(sides[0] if len(set(sides)) == 1 else " → ".join(sides))


def _collectives(changes: list[CollectiveChange]) -> rich.table.Table:
    drawn = _table("Collectives", ("", "kind", "axes", "bytes", "cause", "source"))
    columns: list[Callable[[CollectiveReport], str]] = [
        lambda c: c.kind,
        lambda c: ", ".join(c.axes),
        lambda c: f"{c.bytes:,}",
        lambda c: c.cause,
        lambda c: c.source,
    ]
    for change in changes:
        sides = change.before, change.after
        cells = [[None if side is None else column(side) for side in sides] for column in columns]
        drawn.add_row(change.what, *(_arrow(*cell) for cell in cells))
    return drawn


def _values(changes: list[ValueChange]) -> rich.table.Table:
    drawn = _table("Shardings", ("op", "sharding", "because of", "source"))
    for change in changes:
        a, b = change.before, change.after
        cells = [(a.op, b.op), (a.sharding, b.sharding), (a.provenance, b.provenance)]
        reasons = [tuple(side or "nothing" for side in cell) for cell in cells]
        drawn.add_row(*(_arrow(*cell) for cell in reasons), _arrow(a.source, b.source))
    return drawn


# ---- which row of one report is which of the other -----------------------------------------------


def _pair(
    before: Sequence[Row], after: Sequence[Row], keys: Sequence[Callable[[Row], Hashable]]
) -> list[Pair]:
    """Rows that agree in the first key are paired in order, then of the others by the next key.

    The pairs are in the order of ``after``; what is only before follows the row it stood behind.
    """
    left: dict[int, int] = {}  # index before by index after
    free_before, free_after = list(range(len(before))), list(range(len(after)))
    for key in keys:
        waiting: dict[Hashable, deque[int]] = defaultdict(deque)
        for i in free_before:
            waiting[key(before[i])].append(i)
        for j in free_after:
            if queue := waiting.get(key(after[j])):
                left[j] = queue.popleft()
        taken = set(left.values())
        free_before = [i for i in free_before if i not in taken]
        free_after = [j for j in free_after if j not in left]
    return _in_order(before, after, left, free_before)


def _in_order(
    before: Sequence[Row], after: Sequence[Row], left: dict[int, int], gone: list[int]
) -> list[Pair]:
    where = {i: j for j, i in left.items()}
    behind: dict[int, list[int]] = defaultdict(list)  # gone rows by the row after them, -1: first
    last, next_gone = -1, set(gone)
    for i in range(len(before)):
        if i in next_gone:
            behind[last].append(i)
        else:
            last = max(last, where[i])
    pairs: list[Pair] = [(before[i], None) for i in behind[-1]]
    for j, row in enumerate(after):
        pairs.append((before[left[j]] if j in left else None, row))
        pairs += [(before[i], None) for i in behind[j]]
    return pairs


_TYPE = re.compile(r"\w+\[[^]]*\](\{[^}]*\})?")  # f32[16@data, 8]{partial sum: model}


def _need(collective: CollectiveReport) -> tuple[str, str]:
    """Where it is asked for and why, whatever the sizes and shardings."""
    return collective.source, _TYPE.sub("", collective.cause)


_COLLECTIVE_KEYS: list[Callable[[CollectiveReport], Hashable]] = [
    lambda c: c,
    lambda c: dataclasses.replace(c, source=""),  # lines moved
    lambda c: (c.kind, c.axes, *_need(c)),
    _need,
]
_VALUE_KEYS: list[Callable[[ValueReport], Hashable]] = [
    lambda v: (v.op, v.shape, v.dtype, v.source),
    lambda v: (v.op, v.shape, v.dtype),
]


def _same(before: CollectiveReport | None, after: CollectiveReport | None) -> bool:
    if before is None or after is None:
        return False
    return dataclasses.replace(before, source="") == dataclasses.replace(after, source="")


def explain_diff(before: Report, after: Report) -> ReportDiff:
    """What is different between two reports, for instance without and with one more annotation.

    Args:
        before: of :func:`explain`.
        after: of :func:`explain`, usually for the same program with other annotations.

    Returns:
        Collectives that are new, gone or changed, and values with another sharding; true where
        there are any.

    Raises:
        ShardingError: an argument is no report.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("data",))
        >>> def report(spec):
        ...     x = spmdx.mark_sharding(torch.ones(64, 8).to("spmdx"), mesh, spec)
        ...     spmdx.mark_step()
        ...     return spmdx.explain(x.sum(0))
        >>> diff = spmdx.explain_diff(report((None, "data")), report(("data", None)))
        >>> [(change.what, change.after.kind) for change in diff.collectives]
        [('new', 'all_reduce')]
        >>> diff.wire_bytes  # 2 * 8 * 4 bytes * 7/8
        56
        >>> [(change.before.sharding, change.after.sharding) for change in diff.values][0]
        ('f32[64, 8@data]', 'f32[64@data, 8]')
    """
    with naming("explain_diff"):
        for report in (before, after):
            if not isinstance(report, Report):
                raise ShardingError(
                    f"an argument is a {type(report).__name__}. Expected two reports. Pass what "
                    "spmdx.explain() returned before and after the change."
                )
    collectives = _pair(before.collectives, after.collectives, _COLLECTIVE_KEYS)
    values = _pair(before.values, after.values, _VALUE_KEYS)
    return ReportDiff(
        before,
        after,
        [CollectiveChange(a, b) for a, b in collectives if not _same(a, b)],
        [ValueChange(a, b) for a, b in values if a and b and a.sharding != b.sharding],
    )


__all__ = ["CollectiveChange", "ReportDiff", "ValueChange", "explain_diff"]
