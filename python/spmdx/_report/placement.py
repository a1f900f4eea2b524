# SPDX-License-Identifier: Apache-2.0
"""Reports of steps over devices of several kinds: what runs where, and what is sent."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spmdx._base.cells import Drawn, table
from spmdx._report.times.timeline import name_event, parts_of_pictures, range_event, target_of
from spmdx.errors import naming

if TYPE_CHECKING:
    import rich.table
    from matplotlib.figure import Figure

_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:olive", "tab:brown")


@dataclasses.dataclass(frozen=True)
class PlacedSegmentReport:
    """Ops that run one behind the other on the devices of one coordinate.

    Attributes:
        coordinate: of the axis of kinds.
        kind: of the devices there.
        start_ns: nanoseconds after the step began, predicted.
        end_ns: the same, of its end.
        ops: that compute; others only move elements.
        op: the one that takes longest.
        source: the user's line of that one.
    """

    coordinate: int
    kind: str
    start_ns: int
    end_ns: int
    ops: int
    op: str
    source: str


@dataclasses.dataclass(frozen=True)
class PlacedSendReport:
    """What devices of one coordinate send to those of another in a step.

    Attributes:
        sender: the coordinate.
        receiver: the other one.
        bytes: what one of its devices receives.
        op: that made what is sent.
        source: the user's line of it.
    """

    sender: int
    receiver: int
    bytes: int
    op: str
    source: str


@dataclasses.dataclass(frozen=True, repr=False)
class PlacementReport(Drawn):
    """Where and when the parts of a step run over devices of several kinds.

    Attributes:
        kinds: by coordinate of their axis.
        segments: in the order in which they start.
        sends: in program order.
        step_ns: when the last segment ends, in nanoseconds after the step began, predicted.
        least_ns: no placement of these segments takes less.
        alone_ns: by coordinate, what the whole step would take there, with sends of what lies
            elsewhere; None where some op does not run there, or memory does not hold it.
    """

    kinds: list[str]
    segments: list[PlacedSegmentReport]
    sends: list[PlacedSendReport]
    step_ns: int
    least_ns: int
    alone_ns: list[int | None]

    def timeline(self, path: str | os.PathLike | None = None) -> Figure | None:
        """Draw a lane for each coordinate, with a bar for each segment.

        Args:
            path: of a ``.png``, ``.svg`` or ``.pdf`` file, or of a ``.json`` file that Perfetto
                reads; None: a figure is returned, which notebooks show.

        Raises:
            ShardingError: another ending, or no folder.

        Example:
            >>> import spmdx
            >>> report = spmdx.report.PlacementReport(["cpu"], [], [], 0, 0, [0])
            >>> report.timeline() is None
            False
        """
        with naming("timeline"):
            target = None if path is None else target_of(path, (".png", ".svg", ".pdf", ".json"))
        if target is not None and target.suffix == ".json":
            _trace(self, target)
            return None
        drawn = _figure(self)
        if target is None:
            importlib.import_module("matplotlib.pyplot")  # teaches a notebook to show figures
            return drawn
        drawn.savefig(target, dpi=150)
        return None

    def __rich_console__(self, console: Any, options: Any) -> Iterator[str | rich.table.Table]:
        yield (
            f"placed over {len(self.kinds)} kinds: {self.step_ns / 1000:,.1f} µs by the cost "
            f"model, {self.least_ns / 1000:,.1f} µs at the least"
        )
        import rich.table

        drawn = rich.table.Table(
            "at", "kind", "segments", "busy µs", "alone µs", title="Kinds", title_justify="left"
        )
        for at, kind in enumerate(self.kinds):
            own = [s for s in self.segments if s.coordinate == at]
            busy = sum(s.end_ns - s.start_ns for s in own)
            alone = self.alone_ns[at]
            told = "some op does not run" if alone is None else f"{alone / 1000:,.1f}"
            drawn.add_row(f"{at}", kind, f"{len(own)}", f"{busy / 1000:,.1f}", told)
        yield drawn
        yield table("Segments", PlacedSegmentReport, self.segments)
        yield table("Sends", PlacedSendReport, self.sends)


def placement_report(row: dict[str, Any] | None) -> PlacementReport | None:
    """What the core reports as plain dicts."""
    if row is None:
        return None
    kinds = list(row["kinds"])
    segments = [
        PlacedSegmentReport(
            s["device"],
            kinds[s["device"]],
            s["start_ns"],
            s["end_ns"],
            s["ops"],
            s["op"],
            s["source"],
        )
        for s in row["segments"]
    ]
    sends = [PlacedSendReport(**send) for send in row["sends"]]
    alone = [None if ns < 0 else ns for ns in row["alone_ns"]]
    return PlacementReport(kinds, segments, sends, row["ns"], row["least_ns"], alone)


def _lanes(report: PlacementReport) -> list[str]:
    return [f"{kind} ({at})" for at, kind in enumerate(report.kinds)]


def _figure(report: PlacementReport) -> Figure:
    Figure, _ = parts_of_pictures("a trace: placement.timeline('step.json')")
    drawn = Figure(figsize=(12, 1.2 + 0.6 * len(report.kinds)), layout="constrained")
    axes = drawn.subplots()
    for s in report.segments:
        span = [(s.start_ns / 1000, (s.end_ns - s.start_ns) / 1000)]
        row = len(report.kinds) - 1 - s.coordinate
        colour = _COLOURS[s.coordinate % len(_COLOURS)]
        axes.broken_barh(
            span, (row - 0.4, 0.8), facecolors=colour, edgecolors="white", linewidth=0.3
        )
    axes.set_yticks(range(len(report.kinds) - 1, -1, -1), _lanes(report))
    axes.set_xlim(0, max(report.step_ns, 1) / 1000)
    axes.set_ylim(-0.5, len(report.kinds) - 0.5)
    axes.set_xlabel("microseconds")
    return drawn


def _trace(report: PlacementReport, path: pathlib.Path) -> None:
    """The format of chrome://tracing, which Perfetto reads."""
    events: list[dict[str, Any]] = [name_event("process_name", 0, 0, "predicted")]
    events += [name_event("thread_name", 0, at, lane) for at, lane in enumerate(_lanes(report))]
    for s in report.segments:
        told = {"source": s.source, "ops": s.ops}
        events.append(range_event(0, s.coordinate, s.op, s.start_ns, s.end_ns, told))
    path.write_text(json.dumps({"traceEvents": events}))
