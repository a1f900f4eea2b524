# SPDX-License-Identifier: Apache-2.0
"""Pictures of a plan's time line: what computes and what is on the wire, by the cost model."""

import dataclasses
import importlib
import json
import os
import pathlib
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spmdx._base.arguments import require_path
from spmdx.errors import ShardingError, naming

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_LANES = {"compute": 1, "wire": 0}  # from above
COLOURS = {
    "all_reduce": "tab:red",
    "all_gather": "tab:orange",
    "reduce_scatter": "tab:purple",
    "all_to_all": "tab:green",
    "collective_permute": "tab:olive",
    "send_recv": "tab:brown",
}
COMPUTE, OTHER = "tab:blue", "tab:gray"


@dataclasses.dataclass(frozen=True)
class SpanReport:
    """When an op or a collective runs, predicted by the cost model.

    Attributes:
        lane: ``"compute"`` or ``"wire"``.
        name: the op, or the kind of the collective.
        start_ns: nanoseconds after the step began.
        end_ns: the same, of its end.
        source: the user's line.
    """

    lane: str
    name: str
    start_ns: int
    end_ns: int
    source: str


def last_end(spans: list[SpanReport]) -> int:
    """When the last one ends, in nanoseconds after the step began."""
    return max((span.end_ns for span in spans), default=0)


def draw(
    path: str | os.PathLike, spans: list[SpanReport], mesh: str | None, wire_bytes: int
) -> None:
    """Writes the time line of a plan; see :meth:`spmdx.report.Report.timeline`."""
    with naming("timeline"):
        require_path(path, "step.png")
        target = pathlib.Path(path)
        if target.suffix not in _WRITERS:
            raise ShardingError(
                f"the file {target.name!r} ends in {target.suffix!r}. Expected one of "
                f'{", ".join(_WRITERS)}. Write "step.png".'
            )
        title = _title(spans, mesh, wire_bytes)
    _WRITERS[target.suffix](spans, title, target)


def figure(spans: list[SpanReport], mesh: str | None, wire_bytes: int) -> "Figure":
    """The same as a picture that is written nowhere."""
    with naming("timeline"):
        title = _title(spans, mesh, wire_bytes)
    drawn = _figure(spans, title)
    importlib.import_module("matplotlib.pyplot")  # teaches a notebook to show figures
    return drawn


def _title(spans: list[SpanReport], mesh: str | None, wire_bytes: int) -> str:
    if not spans:
        raise ShardingError(
            "the report has no op that takes time. Expected a program with some. Explain a "
            "step that computes something."
        )
    return f"{mesh or 'no mesh'}: {_times(spans)} for {wire_bytes:,} bytes"


def _picture(spans: list[SpanReport], title: str, path: pathlib.Path) -> None:
    _figure(spans, title).savefig(path, dpi=150)


def _figure(spans: list[SpanReport], title: str) -> "Figure":
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise ImportError(
            "timeline: matplotlib is not installed. Expected it for pictures. Run "
            "`pip install matplotlib`, or write a Chrome trace: report.timeline('step.json')."
        ) from error
    figure = Figure(figsize=(12, 2.6), layout="constrained")
    axes = figure.add_subplot()
    colours = _by_colour(spans)
    for (lane, colour), bars in colours.items():
        place = (_LANES[lane] - 0.4, 0.8)
        axes.broken_barh(bars, place, facecolors=colour, edgecolors="white", linewidth=0.3)
    axes.set_yticks(list(_LANES.values()), list(_LANES))
    axes.set_xlim(0, last_end(spans) / 1000)
    axes.set_xlabel("microseconds, by the cost model")
    axes.set_title(title, fontsize=10, loc="left")
    seen = {s.name for s in spans if s.lane == "wire"}
    kinds = [kind for kind in COLOURS if kind in seen] + sorted(seen - COLOURS.keys())
    if kinds:
        handles = [Patch(color=COLOURS.get(kind, OTHER), label=kind) for kind in kinds]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def _times(spans: list[SpanReport]) -> str:
    busy = dict.fromkeys(_LANES, 0)
    for span in spans:
        busy[span.lane] += span.end_ns - span.start_ns
    return (
        f"{last_end(spans) / 1000:,.1f} µs a step, {busy['compute'] / 1000:,.1f} µs of compute, "
        f"{busy['wire'] / 1000:,.1f} µs on the wire"
    )


def _by_colour(spans: list[SpanReport]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    bars = defaultdict(list)
    for span in spans:
        colour = COLOURS.get(span.name, OTHER) if span.lane == "wire" else COMPUTE
        microseconds = span.start_ns / 1000, (span.end_ns - span.start_ns) / 1000
        bars[span.lane, colour].append(microseconds)
    return bars


def _trace(spans: list[SpanReport], _: str, path: pathlib.Path) -> None:
    """The format of chrome://tracing; times are in microseconds."""
    lanes = list(_LANES)
    names = [
        {"ph": "M", "pid": 0, "tid": i, "name": "thread_name", "args": {"name": lane}}
        for i, lane in enumerate(lanes)
    ]
    path.write_text(json.dumps({"traceEvents": names + [_event(s, lanes) for s in spans]}))


def _event(span: SpanReport, lanes: list[str]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 0,
        "tid": lanes.index(span.lane),
        "name": span.name,
        "ts": span.start_ns / 1000,
        "dur": (span.end_ns - span.start_ns) / 1000,
        "args": {"source": span.source},
    }


_WRITERS: dict[str, Callable[[list[SpanReport], str, pathlib.Path], None]] = {
    ".png": _picture,
    ".svg": _picture,
    ".pdf": _picture,
    ".json": _trace,
}
