# SPDX-License-Identifier: Apache-2.0
"""Pictures of a plan's time line: what computes and what is on the wire, by the cost model."""

import dataclasses
import importlib
import json
import os
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from spmdx._base.arguments import require_path
from spmdx._base.sizes import in_bytes
from spmdx.errors import ShardingError, naming

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch


LANES = "compute", "wire"
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
        held_bytes: what a device holds meanwhile, at most.
        source: the user's line.
        rank: of a pipeline, along its axis, whose devices run it; None: all do.
        level: of the topology, whose links are used, from 0 on; of an op 0.
    """

    lane: str
    name: str
    start_ns: int
    end_ns: int
    held_bytes: int
    source: str
    rank: int | None = None
    level: int = 0


def last_end(spans: list[SpanReport]) -> int:
    """When the last one ends, in nanoseconds after the step began."""
    return max((span.end_ns for span in spans), default=0)


def lanes_of(spans: list[SpanReport]) -> dict[str, list[SpanReport]]:
    """Spans by the name of their lane, from above; those of all ranks are in the lanes of each."""
    ranks: list[int | None] = [*sorted({s.rank for s in spans if s.rank is not None})]
    levels = {s.level for s in spans if s.lane == "wire"}
    found: dict[str, list[SpanReport]] = {}
    for rank in ranks or [None]:
        of_rank = "" if rank is None else f" {rank}"
        found |= {f"{lane}{of_rank}": [] for lane in LANES}
        for span in spans:
            if span.rank in (None, rank):
                of_level = f", level {span.level}" if span.level and len(levels) > 1 else ""
                found.setdefault(f"{span.lane}{of_rank}{of_level}", []).append(span)
    return found


def target_of(path: str | os.PathLike, writers: Iterable[str]) -> pathlib.Path:
    """The file to write. Raises ShardingError unless it ends as one of the ``writers`` does."""
    require_path(path, "step.png")
    target = pathlib.Path(path)
    if target.suffix not in writers:
        raise ShardingError(
            f"the file {target.name!r} ends in {target.suffix!r}. Expected one of "
            f'{", ".join(writers)}. Write "step.png".'
        )
    return target


def parts_of_pictures(
    instead: str, function: str = "timeline"
) -> "tuple[type[Figure], type[Patch]]":
    """matplotlib's classes. Raises ImportError, with what to write ``instead`` of a picture."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise ImportError(
            f"{function}: matplotlib is not installed. Expected it for pictures. Run "
            f"`pip install matplotlib`, or write {instead}."
        ) from error
    return Figure, Patch


def draw(
    path: str | os.PathLike, spans: list[SpanReport], mesh: str | None, wire_bytes: int
) -> None:
    """Writes the time line of a plan; see :meth:`spmdx.report.Report.timeline`."""
    with naming("timeline"):
        target = target_of(path, _WRITERS)
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
    Figure, Patch = parts_of_pictures("a Chrome trace: report.timeline('step.json')")
    lanes = lanes_of(spans)
    figure = Figure(figsize=(12, 2 + 0.8 * len(lanes)), layout="constrained")
    axes, memory = figure.subplots(2, sharex=True, height_ratios=(len(lanes), 1))
    for at, within in enumerate(reversed(lanes.values())):
        for colour, bars in _by_colour(within).items():
            place = (at - 0.4, 0.8)
            axes.broken_barh(bars, place, facecolors=colour, edgecolors="white", linewidth=0.3)
    axes.set_yticks(range(len(lanes)), list(reversed(lanes)))
    axes.set_xlim(0, last_end(spans) / 1000)
    axes.set_title(title, fontsize=10, loc="left")
    curve = sorted((span.start_ns / 1000, span.held_bytes) for span in spans)
    memory.fill_between(*zip(*curve, strict=True), step="post", color="tab:cyan")
    memory.set_ylim(0)
    memory.set_ylabel("held")
    memory.yaxis.set_major_formatter(lambda size, _: in_bytes(size))
    memory.set_xlabel("microseconds, by the cost model")
    seen = {s.name for s in spans if s.lane == "wire"}
    kinds = [kind for kind in COLOURS if kind in seen] + sorted(seen - COLOURS.keys())
    if kinds:
        handles = [Patch(color=COLOURS.get(kind, OTHER), label=kind) for kind in kinds]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def _times(spans: list[SpanReport]) -> str:
    busy = dict.fromkeys(LANES, 0)
    for span in spans:
        busy[span.lane] += span.end_ns - span.start_ns
    return (
        f"{last_end(spans) / 1000:,.1f} µs a step, {busy['compute'] / 1000:,.1f} µs of compute, "
        f"{busy['wire'] / 1000:,.1f} µs on the wire"
    )


def _by_colour(spans: list[SpanReport]) -> dict[str, list[tuple[float, float]]]:
    bars = defaultdict(list)
    for span in spans:
        colour = COLOURS.get(span.name, OTHER) if span.lane == "wire" else COMPUTE
        microseconds = span.start_ns / 1000, (span.end_ns - span.start_ns) / 1000
        bars[colour].append(microseconds)
    return bars


def _trace(spans: list[SpanReport], _: str, path: pathlib.Path) -> None:
    """The format of chrome://tracing; times are in microseconds."""
    lanes = lanes_of(spans)
    names = [name_event("thread_name", 0, i, lane) for i, lane in enumerate(lanes)]
    order = {id(span): place for place, span in enumerate(spans)}
    placed = [(i, span) for i, within in enumerate(lanes.values()) for span in within]
    placed.sort(key=lambda entry: order[id(entry[1])])
    events = [
        range_event(0, i, s.name, s.start_ns, s.end_ns, {"source": s.source}) for i, s in placed
    ]
    held = [held_event(s.start_ns, s.held_bytes) for s in sorted(spans, key=lambda s: s.start_ns)]
    path.write_text(json.dumps({"traceEvents": names + events + held}))


def held_event(start_ns: int, held: int) -> dict[str, Any]:
    """A point of the curve of what a device holds, in bytes."""
    return {"ph": "C", "pid": 0, "name": "held", "ts": start_ns / 1000, "args": {"bytes": held}}


def name_event(what: str, process: int, thread: int, text: str) -> dict[str, Any]:
    """What a trace calls a process or a thread."""
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": text}}


def range_event(
    process: int, thread: int, name: str, start_ns: int, end_ns: int, told: dict[str, Any]
) -> dict[str, Any]:
    """A bar of a trace, with what is told of it besides."""
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "ts": start_ns / 1000,
        "dur": (end_ns - start_ns) / 1000,
        "args": told,
    }


_WRITERS: dict[str, Callable[[list[SpanReport], str, pathlib.Path], None]] = {
    ".png": _picture,
    ".svg": _picture,
    ".pdf": _picture,
    ".json": _trace,
}
