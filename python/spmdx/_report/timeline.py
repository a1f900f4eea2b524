# SPDX-License-Identifier: Apache-2.0
"""Pictures of a plan's time line: what computes and what is on the wire, by the cost model."""

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

    from spmdx._report.report import Report, SpanReport

_LANES = {"compute": 1, "wire": 0}  # from above
_COLOURS = {
    "all_reduce": "tab:red",
    "all_gather": "tab:orange",
    "reduce_scatter": "tab:purple",
    "all_to_all": "tab:green",
    "collective_permute": "tab:olive",
    "send_recv": "tab:brown",
}
_COMPUTE, _OTHER = "tab:blue", "tab:gray"


def draw(report: "Report", path: str | os.PathLike) -> None:
    """Writes the time line of a report; see :meth:`spmdx.report.Report.timeline`."""
    with naming("timeline"):
        require_path(path, "step.png")
        target = pathlib.Path(path)
        if target.suffix not in _WRITERS:
            raise ShardingError(
                f"the file {target.name!r} ends in {target.suffix!r}. Expected one of "
                f'{", ".join(_WRITERS)}. Write "step.png".'
            )
        if not report.spans:
            raise ShardingError(
                "the report has no op that takes time. Expected a program with some. Explain a "
                "step that computes something."
            )
    _WRITERS[target.suffix](report, target)


def _picture(report: "Report", path: pathlib.Path) -> None:
    _figure(report).savefig(path, dpi=150)


def _figure(report: "Report") -> "Figure":
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
    colours = _by_colour(report.spans)
    for (lane, colour), bars in colours.items():
        place = (_LANES[lane] - 0.4, 0.8)
        axes.broken_barh(bars, place, facecolors=colour, edgecolors="white", linewidth=0.3)
    axes.set_yticks(list(_LANES.values()), list(_LANES))
    axes.set_xlim(0, report.step_ns / 1000)
    axes.set_xlabel("microseconds, by the cost model")
    axes.set_title(_title(report), fontsize=10, loc="left")
    seen = {s.name for s in report.spans if s.lane == "wire"}
    kinds = [kind for kind in _COLOURS if kind in seen] + sorted(seen - _COLOURS.keys())
    if kinds:
        handles = [Patch(color=_COLOURS.get(kind, _OTHER), label=kind) for kind in kinds]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def _title(report: "Report") -> str:
    busy = dict.fromkeys(_LANES, 0)
    for span in report.spans:
        busy[span.lane] += span.end_ns - span.start_ns
    return (
        f"{report.mesh or 'no mesh'}: {report.step_ns / 1000:,.1f} µs a step, "
        f"{busy['compute'] / 1000:,.1f} µs of compute, {busy['wire'] / 1000:,.1f} µs on the wire "
        f"for {report.wire_bytes:,} bytes"
    )


def _by_colour(spans: "list[SpanReport]") -> dict[tuple[str, str], list[tuple[float, float]]]:
    bars = defaultdict(list)
    for span in spans:
        colour = _COLOURS.get(span.name, _OTHER) if span.lane == "wire" else _COMPUTE
        microseconds = span.start_ns / 1000, (span.end_ns - span.start_ns) / 1000
        bars[span.lane, colour].append(microseconds)
    return bars


def _trace(report: "Report", path: pathlib.Path) -> None:
    """The format of chrome://tracing; times are in microseconds."""
    lanes = list(_LANES)
    names = [
        {"ph": "M", "pid": 0, "tid": i, "name": "thread_name", "args": {"name": lane}}
        for i, lane in enumerate(lanes)
    ]
    path.write_text(json.dumps({"traceEvents": names + [_event(s, lanes) for s in report.spans]}))


def _event(span: "SpanReport", lanes: list[str]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 0,
        "tid": lanes.index(span.lane),
        "name": span.name,
        "ts": span.start_ns / 1000,
        "dur": (span.end_ns - span.start_ns) / 1000,
        "args": {"source": span.source},
    }


_WRITERS: "dict[str, Callable[[Report, pathlib.Path], None]]" = {
    ".png": _picture,
    ".svg": _picture,
    ".pdf": _picture,
    ".json": _trace,
}
