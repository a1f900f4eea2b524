# SPDX-License-Identifier: Apache-2.0
"""Reports of memory: who holds what at the worst moment of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spmdx._base.cells import Drawn, table

if TYPE_CHECKING:
    import rich.table

LARGEST = 10  # holders that a table shows


@dataclasses.dataclass(frozen=True)
class KindReport:
    """What the values of one kind hold at the worst moment, in bytes of a device."""

    kind: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class HeldReport:
    """Memory that a device holds at the worst moment of a step.

    Attributes:
        kind: what it is for; :class:`MemoryReport` lists the kinds.
        op: what made it, as ``"aten.mm"``, or ``"input"``.
        type: dtype, whole shape and sharding, as ``"f32[64@data, 8]"``.
        bytes: of a device. Views share memory, which counts once.
        source: the user's line that made it, as ``"train.py:41"``; that of the annotation of an
            input.
    """

    kind: str
    op: str
    type: str
    bytes: int
    source: str


@dataclasses.dataclass(frozen=True)
class RecomputedReport:
    """An op that a plan does again, so that its result need not be held.

    Attributes:
        op: as ``"aten.gelu"``, or the kind of a collective.
        count: how often in the step, all of the user's line.
        flops: floating-point operations of the device that has most to do, together.
        ns: nanoseconds that it takes, predicted.
        source: the user's line, as ``"train.py:41"``.
    """

    op: str
    count: int
    flops: int
    ns: int
    source: str


@dataclasses.dataclass(frozen=True, repr=False)
class MemoryReport(Drawn):
    """Who holds the memory of the devices that hold most, when they hold most.

    Kinds are ``"parameters"`` (and buffers), ``"gradients"``, ``"optimizer state"``,
    ``"activations"`` (and what a backward pass makes of them), ``"gathered parameters"`` (and what
    they are cast to), ``"buffers of collectives"``, ``"the update"`` (what an optimizer makes on
    its way) and ``"inputs"``. They are told by which pass makes and reads a value: in a step
    without a backward pass all that is kept are parameters, and a parameter that is neither marked
    nor updated is an input.

    Attributes:
        peak_bytes: of a device, predicted.
        host_bytes: of the memory of a device's host at most, where the step begins with something
            there, or leaves it there, as :func:`spmdx.nn.zero` has it with ``offload``.
        at: what runs then, as ``"aten.mm at train.py:41"``; "" before or after all ops.
        by_kind: bytes of a device at that moment, by kind; together ``peak_bytes``.
        held: who holds them, the largest first.
        recomputed: what is computed again under :func:`spmdx.set_memory_limit`, the longest first.
        measured: what each device of the mesh held at most in the last run, in bytes, where
            ``SPMDX_CHECK=memory`` is set; else None.
    """

    peak_bytes: int
    host_bytes: int
    at: str
    by_kind: dict[str, int]
    held: list[HeldReport]
    recomputed: list[RecomputedReport]
    measured: list[int] | None

    def __rich_console__(self, console: Any, options: Any) -> Iterator[str | rich.table.Table]:
        where = f", at {self.at}" if self.at else ""
        yield f"A device holds {self.peak_bytes:,} bytes at most{where}"
        if self.host_bytes:
            yield f"The host of a device holds {self.host_bytes:,} bytes of it at most"
        if self.measured is not None:
            yield f"Measured in the last run: {max(self.measured):,} bytes at most"
        kinds = [KindReport(kind, size) for kind, size in self.by_kind.items() if size]
        yield table("Memory by kind", KindReport, kinds)
        shown = self.held[:LARGEST]
        title = f"The {len(shown)} that hold most of {len(self.held)}"
        yield table(title if len(shown) > 1 else "Who holds it", HeldReport, shown)
        if self.recomputed:
            ns, flops = (sum(getattr(row, f) for row in self.recomputed) for f in ("ns", "flops"))
            yield f"Computed again, so as to hold less: {flops:,} flops, {ns:,} ns"
            yield table("Computed again", RecomputedReport, self.recomputed[:LARGEST])


def memory_report(row: dict[str, Any]) -> MemoryReport:
    """The report of what C++ tells as a dict."""
    made = {
        "held": [HeldReport(**held) for held in row["held"]],
        "recomputed": [RecomputedReport(**again) for again in row["recomputed"]],
    }
    return MemoryReport(**{**row, **made})
