# SPDX-License-Identifier: Apache-2.0
"""Reports of segments: what a compiler was given of a plan, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spmdx._base.cells import Drawn
from spmdx._compiling.of_devices import name_of

if TYPE_CHECKING:
    import rich.console
    import rich.table


@dataclasses.dataclass(frozen=True)
class SegmentReport:
    """Ops of one device between two collectives.

    Attributes:
        source: the user's line of its first op.
        compiler: of the device; it is given the segment.
        ops: how many there are.
        flops: what they compute, in floating-point operations.
        state: ``"waiting"`` for the compiler, ``"compiled"``, or ``"refused"``: PyTorch's kernels
            run it.
        why: it was refused.
        compile_ns: what that took, in nanoseconds, or reading it from disk.
        text: its ops, in the language of dumps.
    """

    source: str
    compiler: str
    ops: int
    flops: int
    state: str
    why: str
    compile_ns: int
    text: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, repr=False)
class SegmentsReport(Drawn):
    """What of a plan is compiled; nothing where no compiler is in force, or the plan has not run.

    Attributes:
        segments: in the order in which they run, on each device that has other parts of tensors.
        ops: of the whole program, on all these devices.
        flops: what they compute.
    """

    segments: list[SegmentReport] = dataclasses.field(default_factory=list)
    ops: int = 0
    flops: int = 0

    @property
    def compiled_ops(self) -> float:
        """The share of ops that compiled segments run."""
        return self._share("ops")

    @property
    def compiled_flops(self) -> float:
        """The share of floating-point operations that compiled segments run."""
        return self._share("flops")

    def _share(self, what: str) -> float:
        done = sum(getattr(s, what) for s in self.segments if s.state == "compiled")
        return done / max(1, getattr(self, what))

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Iterator[rich.table.Table]:
        import rich.table

        title = (
            f"{self.compiled_ops:.0%} of ops and {self.compiled_flops:.0%} of flops are compiled"
        )
        table = rich.table.Table(
            *("line", "compiler", "ops", "flops", "state", "seconds", "why"),
            title=title,
            title_justify="left",
        )
        for s in self.segments:
            seconds = f"{s.compile_ns / 1e9:.1f}" if s.compile_ns else ""
            table.add_row(s.source, s.compiler, f"{s.ops}", f"{s.flops:,}", s.state, seconds, s.why)
        yield table


def segments_report(row: dict[str, Any]) -> SegmentsReport:
    """What the core reports as plain dicts."""
    rows = [
        SegmentReport(compiler=name_of(device) or "", **segment)
        for segment, device in ((s, s.pop("device")) for s in row["segments"])
    ]
    return SegmentsReport(rows, row["ops"], row["flops"])
