# SPDX-License-Identifier: Apache-2.0
"""Reports of segments: what a compiler was given of a plan, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spmdx._base.cells import Drawn
from spmdx._compiling.of_devices import compiler_of
from spmdx._segments.compiler import Compiler
from spmdx._segments.segment import Segment
from spmdx.errors import ShardingError, naming

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
        of_ops_ns: nanoseconds of its ops by PyTorch's kernels, in the run that was compared; 0:
            there was none.
        ns: nanoseconds of what was compiled, the mean of all runs but the first; 0: the same.
        text: its ops, in the language of dumps.
    """

    source: str
    compiler: str
    ops: int
    flops: int
    state: str
    why: str
    compile_ns: int
    of_ops_ns: int
    ns: int
    text: str = dataclasses.field(repr=False)
    _given_to: Compiler | None = dataclasses.field(default=None, repr=False, compare=False)

    def code(self) -> str:
        """Show the segment in the language that its compiler reads.

        Returns:
            StableHLO, a model of ONNX as text, C++ for synthesis, or Python of torch.fx.

        Raises:
            ShardingError: some of its ops cannot be written, or nothing compiles it any more.

        Example:
            >>> import spmdx, torch
            >>> spmdx.set_compiler("inductor", compile_now=True)
            >>> (torch.ones(4).to("spmdx").exp() + 1).cpu().shape
            torch.Size([4])
            >>> "torch.ops.aten.exp" in spmdx.explain().segments.segments[0].code()
            True
            >>> spmdx.set_compiler(None)
        """
        with naming("code"):
            if self._given_to is None:
                raise ShardingError(
                    f"no compiler is given the segment of {self.source} any more. Expected one in "
                    "force when the report is made. Call spmdx.set_compiler, then spmdx.explain."
                )
            try:
                return self._given_to.code(Segment.parse(self.text))
            except Exception as error:
                raise ShardingError(
                    f"{self.compiler} does not write the segment of {self.source}: {error}. "
                    "Expected ops that it takes. Ask those whose state is 'compiled'."
                ) from error


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

    def code(self, kind: str) -> str:
        """Show what devices of one kind are given.

        Args:
            kind: as ``spmdx.runtime.get_devices`` names it, or the name of a compiler.

        Returns:
            The code of its segments that are compiled, each once, in the order in which they run.

        Raises:
            ShardingError: no segment of such a device is compiled.

        Example:
            >>> import spmdx, torch
            >>> spmdx.runtime.set_devices(["xla:cpu"] * 8, compile_now=True)
            >>> (torch.ones(4).to("spmdx").exp() + 1).cpu().shape
            torch.Size([4])
            >>> "stablehlo.exponential" in spmdx.explain().segments.code("xla:cpu")
            True
            >>> spmdx.runtime.set_devices([])
        """
        with naming("code"):
            compiler = kind.partition("@")[0].partition(":")[0]
            asked = [s for s in self.segments if s.compiler == compiler and s.state == "compiled"]
            if not asked:
                there = sorted({s.compiler for s in self.segments if s.state == "compiled"})
                raise ShardingError(
                    f"no segment is compiled for devices of kind {kind!r}. Expected one of "
                    f"{', '.join(map(repr, there)) or 'those that have a compiler'}. Run the step "
                    "until kernels have taken over, and call spmdx.explain() behind it."
                )
            first = {s.text: s for s in reversed(asked)}
            texts = dict.fromkeys(s.text for s in asked)
            return "\n".join(first[text].code() for text in texts)

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
            *("line", "compiler", "ops", "flops", "state", "seconds", "us before", "us now", "why"),
            title=title,
            title_justify="left",
        )
        for s in self.segments:
            seconds = f"{s.compile_ns / 1e9:.1f}" if s.compile_ns else ""
            times = (f"{ns / 1e3:.0f}" if ns else "" for ns in (s.of_ops_ns, s.ns))
            row = (s.source, s.compiler, f"{s.ops}", f"{s.flops:,}", s.state, seconds, *times)
            table.add_row(*row, s.why)
        yield table


def segments_report(row: dict[str, Any]) -> SegmentsReport:
    """What the core reports as plain dicts."""
    rows = [
        SegmentReport(compiler="" if found is None else found.name, **segment, _given_to=found)
        for segment, found in ((s, compiler_of(s.pop("device"))) for s in row["segments"])
    ]
    return SegmentsReport(rows, row["ops"], row["flops"])
