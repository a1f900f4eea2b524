# SPDX-License-Identifier: Apache-2.0
"""Pictures and traces of a profile: the predicted time line, and below it the measured one."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spmdx._report.times.timeline import (
    COLOURS,
    COMPUTE,
    OTHER,
    name_event,
    parts_of_pictures,
    range_event,
    target_of,
)
from spmdx.errors import naming

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spmdx._report.profile import MeasuredOp, Profile

LANES = ("compute", "wire")
PREDICTED, MEASURED = "predicted, one device", "measured, this process"
Bars = list[tuple["MeasuredOp", int, int]]  # with begin and end in nanoseconds


def draw(path: str | os.PathLike, profile: Profile) -> None:
    """Writes a picture or a trace; see :meth:`spmdx.report.Profile.timeline`."""
    with naming("timeline"):
        target = target_of(path, _WRITERS)
    _WRITERS[target.suffix](profile, target)


def figure(profile: Profile) -> Figure:
    """The same as a picture that is written nowhere."""
    drawn = _figure(profile)
    importlib.import_module("matplotlib.pyplot")  # teaches a notebook to show figures
    return drawn


def _bars(profile: Profile) -> dict[str, Bars]:
    return {
        PREDICTED: [
            (op, op.predicted_start_ns, op.predicted_end_ns)
            for op in profile.ops
            if op.predicted_ns > 0
        ],
        MEASURED: [(op, op.start_ns, op.end_ns) for op in profile.ops],
    }


def _picture(profile: Profile, path: pathlib.Path) -> None:
    _figure(profile).savefig(path, dpi=150)


def _figure(profile: Profile) -> Figure:
    Figure, Patch = parts_of_pictures("a trace: profile.timeline('step.json')")
    drawn = Figure(figsize=(12, 4.4), layout="constrained")
    for axes, (title, bars) in zip(drawn.subplots(2, 1), _bars(profile).items(), strict=True):
        for op, start, end in bars:
            span = [(start / 1000, (end - start) / 1000)]
            place = (1 - LANES.index(op.lane) - 0.4, 0.8)
            axes.broken_barh(span, place, facecolors=_colour(op), edgecolors="white", linewidth=0.3)
        last = max((end for _, _, end in bars), default=1000)
        axes.set_yticks([1, 0], LANES)
        axes.set_xlim(0, last / 1000)
        axes.set_ylim(-0.5, 1.5)
        axes.set_xlabel("microseconds")
        axes.set_title(f"{title}: {last / 1000:,.1f} µs", fontsize=10, loc="left")
    kinds = sorted({op.name for op in profile.ops if op.lane == "wire"})
    if kinds:
        handles = [Patch(color=COLOURS.get(kind, OTHER), label=kind) for kind in kinds]
        drawn.legend(handles=handles, loc="outside right upper", fontsize=8)
    return drawn


def _colour(op: MeasuredOp) -> str:
    return COLOURS.get(op.name, OTHER) if op.lane == "wire" else COMPUTE


def _trace(profile: Profile, path: pathlib.Path) -> None:
    """The format of chrome://tracing, which Perfetto reads; times are in microseconds."""
    events: list[dict[str, Any]] = []
    for process, (title, bars) in enumerate(_bars(profile).items()):
        events.append(name_event("process_name", process, 0, title))
        events += [name_event("thread_name", process, i, lane) for i, lane in enumerate(LANES)]
        events += [_event(process, *bar) for bar in bars]
    path.write_text(json.dumps({"traceEvents": events}))


def _event(process: int, op: MeasuredOp, start: int, end: int) -> dict[str, Any]:
    told: dict[str, Any] = {"source": op.source}
    if op.lane == "wire":
        told |= {"axes": list(op.axes), "bytes": op.bytes}
    return range_event(process, LANES.index(op.lane), op.name, start, end, told)


_WRITERS: dict[str, Callable[[Profile, pathlib.Path], None]] = {
    ".png": _picture,
    ".svg": _picture,
    ".pdf": _picture,
    ".json": _trace,
}
