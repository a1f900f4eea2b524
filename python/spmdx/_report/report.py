# SPDX-License-Identifier: Apache-2.0
"""Reports: what a plan decided, as plain values that print as tables."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from spmdx._base.cells import Drawn, as_html, folded, table, where_told
from spmdx._report.chakra import files
from spmdx._report.load import LoadReport
from spmdx._report.memory import MemoryReport
from spmdx._report.placement import PlacementReport
from spmdx._report.segments import SegmentsReport
from spmdx._report.stages import PipelineReport
from spmdx._report.times import timeline
from spmdx._report.times.timeline import SpanReport

if TYPE_CHECKING:  # what draws is imported when it draws
    import rich.console
    import rich.table
    import rich.text
    from matplotlib.figure import Figure

    import spmdx._C as _C

DEAREST = 6  # collectives that a notebook's cell shows at once
MOST_REPEATED = 0.05  # of the work of a device, that devices repeat unsaid


@dataclasses.dataclass(frozen=True)
class CollectiveReport:
    """One collective of a plan.

    Attributes:
        kind: its name, as ``"all_reduce"``; ``docs/sharding.md`` lists them.
        axes: names of the mesh axes it runs over.
        group_size: the number of devices of a group.
        dtype: as ``"f32"``.
        bytes: what one device receives over the wire.
        count: how often it runs in a step.
        cause: the value, the op and the reason.
        source: the user's line, as ``"train.py:41"``.
        way: between processes, ``"direct"``: messages between two each; or ``"native"``: the
            backend's own collective, where all parts are equal.
    """

    kind: str
    axes: tuple[str, ...]
    group_size: int
    dtype: str
    bytes: int
    count: int
    cause: str
    source: str
    way: str = where_told("direct")


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
class BalanceReport:
    """Products of one line that several devices repeat, and what would share them out.

    Attributes:
        source: the user's line, as ``"train.py:41"``.
        op: as ``"aten.mm"``.
        count: how many such products the line has.
        devices: how many devices do the same.
        flops: floating-point operations of each of them.
        operand: the type of an operand with a dim that could be cut, as ``"f32[64, 8]"``; else "".
        spec: a partition spec for it, as ``"('data', None)"``.
    """

    source: str
    op: str
    count: int
    devices: int
    flops: int
    operand: str
    spec: str

    def __str__(self) -> str:
        line = f" at {self.source}" if self.source else ""
        many = f"{self.count} x {self.op}" if self.count > 1 else self.op
        said = f"{many}{line}: {self.devices} devices do the same."
        if not self.spec:
            return f"{said} No dim of an operand can be cut further."
        return (
            f"{said} To share it out, mark its operand, {self.operand}, or what that is made of: "
            f"spmdx.mark_sharding(x, mesh, {self.spec})."
        )


@dataclasses.dataclass(frozen=True, repr=False)
class Report(Drawn):
    """What a plan decided; ``print`` draws it as tables.

    ``docs/why_gathered.md`` shows how to find out why a collective is there, and what else the
    planner could have done.

    Attributes:
        mesh: as ``"Mesh(data=4, model=2)"``; None where nothing is annotated.
        collectives: all that crosses the wire, in program order.
        values: inputs and results of ops, in program order.
        fallbacks: ops without a rule.
        peak_bytes: of live tensors, a device, predicted.
        memory: who holds them, at the moment when they are most.
        load: what each device computes and waits for, predicted.
        spans: when ops and collectives run, predicted, on the device that has most to do.
        flops: floating-point operations of the device that has most to do.
        whole_flops: those of the same ops on one device; a share of 1 / devices is an even one.
        balance: products that devices repeat, those with most flops first; empty if there are none.
        pipeline: stages, what they send, and their schedule; None where there are no stages.
        placement: what runs on which kind of devices (:func:`spmdx.auto.place`); None elsewhere.
        segments: what is compiled of what has run (:func:`spmdx.set_compiler`).
        step_ns: the time of a step in nanoseconds, predicted by the cost model: the end of the last
            span, unless devices share processors (:class:`spmdx.Topology`).
    """

    mesh: str | None
    collectives: list[CollectiveReport]
    values: list[ValueReport]
    fallbacks: list[FallbackReport]
    peak_bytes: int
    spans: list[SpanReport] = dataclasses.field(default_factory=list)
    flops: int = 0
    whole_flops: int = 0
    balance: list[BalanceReport] = dataclasses.field(default_factory=list)
    pipeline: PipelineReport | None = None
    placement: PlacementReport | None = None
    memory: MemoryReport | None = None
    load: LoadReport | None = None
    step_ns: int = 0
    segments: SegmentsReport = dataclasses.field(default_factory=SegmentsReport)
    _plan: _C.PlanHandle | None = dataclasses.field(default=None, compare=False)

    @property
    def wire_bytes(self) -> int:
        """What one device receives in a step, in bytes; of a pipeline, one of each stage."""
        return sum(c.bytes * c.count for c in self.collectives)

    def count(self, kind: str) -> int:
        """How many collectives of this kind a step runs.

        Args:
            kind: as in :class:`CollectiveReport`.
        """
        return sum(c.count for c in self.collectives if c.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain values, for JSON."""
        told = {**dataclasses.asdict(self), "wire_bytes": self.wire_bytes}
        return {name: value for name, value in told.items() if name != "_plan"}

    def timeline(self, path: str | os.PathLike | None = None) -> Figure | None:
        """Draw when ops and collectives run, one lane each, as the cost model predicts.

        Args:
            path: a file to write. ``.png``, ``.svg`` and ``.pdf`` are pictures (drawn by
                matplotlib); ``.json`` is a Chrome trace, for https://ui.perfetto.dev. None
                writes nothing.

        Returns:
            The picture where no file is named, which a notebook shows; else None.

        Raises:
            ShardingError: another ending, or no program with ops to draw.
            ImportError: a picture, and matplotlib is not installed.

        Example:
            >>> import pathlib, tempfile, torch, spmdx
            >>> mesh = spmdx.get_1d_mesh("data")
            >>> x = spmdx.mark_sharding(torch.ones(64, 4).to("spmdx"), mesh, ("data", None))
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.json"
            >>> spmdx.explain(x.exp().sum()).timeline(path)
            >>> "all_reduce" in path.read_text()
            True
        """
        if path is None:
            return timeline.figure(self.spans, self.mesh, self.wire_bytes)
        timeline.draw(path, self.spans, self.mesh, self.wire_bytes)
        return None

    def save_chakra(
        self, prefix: str | os.PathLike, *, ranks: Iterable[int] | None = None
    ) -> list[pathlib.Path]:
        """Write what each device does as execution traces of MLCommons Chakra, for simulators.

        A node is an op, a collective or one message between two devices, with the time that the
        cost model predicts. What takes no time, as a view, is left out. Figures are those of the
        largest shard where shards differ, but messages are as long as they are.

        Args:
            prefix: of the files ``PREFIX.DEVICE.et``, and of ``PREFIX.groups.json``, which lists
                the devices of each process group.
            ranks: the ids of devices whose files are written; None: of all of the plan.

        Returns:
            The files that were written.

        Raises:
            ShardingError: a device that is none of the plan, or the report is a copy without plan.
            ImportError: protobuf is not installed.

        Example:
            >>> import pathlib, tempfile, torch, spmdx
            >>> mesh = spmdx.get_1d_mesh("data")
            >>> x = spmdx.mark_sharding(torch.ones(64, 4).to("spmdx"), mesh, ("data", None))
            >>> folder = pathlib.Path(tempfile.mkdtemp())
            >>> paths = spmdx.explain(x.exp().sum()).save_chakra(folder / "step", ranks=[0, 1])
            >>> [path.name for path in paths]
            ['step.0.et', 'step.1.et', 'step.groups.json']

        Source: https://github.com/mlcommons/chakra and arXiv:2305.14516.
        """
        return files.save(prefix, self._plan, ranks)

    def __rich_console__(
        self, console: rich.console.Console, options: Any
    ) -> rich.console.RenderResult:
        yield from self._head()
        if self.pipeline is not None:
            yield self.pipeline
        if self.placement is not None:
            yield self.placement
        yield table("Collectives", CollectiveReport, self.collectives)
        if self.memory is not None:
            yield self.memory
        yield from self._rows_of_ops()

    def _repr_html_(self) -> str:
        """The dearest collectives at once; all the rest below lines that a click opens."""
        dearest = sorted(self.collectives, key=lambda c: -c.bytes * c.count)[:DEAREST]
        few = len(dearest) == len(self.collectives)
        title = "Collectives" if few else f"The {DEAREST} dearest collectives"
        rows = self.collectives if few else dearest
        shown = as_html(*self._head(), table(title, CollectiveReport, rows))
        if not few:
            said = f"All {len(self.collectives)} rows of collectives, in program order"
            shown += folded(said, table("Collectives", CollectiveReport, self.collectives))
        if self.pipeline is not None:
            shown += as_html(self.pipeline)
        if self.placement is not None:
            shown += as_html(self.placement)
        if self.memory is not None:
            shown += folded(f"Who holds the {self.peak_bytes:,} bytes of a device", self.memory)
        said = f"How {len(self.values)} values are cut, and why"
        return shown + folded(said, *self._rows_of_ops())

    def _head(self) -> Iterator[str | rich.text.Text]:
        import rich.text

        yield (
            f"{self.mesh or 'no mesh'}: {sum(c.count for c in self.collectives)} collectives, "
            f"{self.wire_bytes:,} bytes over the wire and {self.peak_bytes:,} bytes of memory "
            "a device"
        )
        if self.mesh and set(re.findall(r"=(\d+)", self.mesh)) == {"1"}:
            yield (
                "One device holds everything: nothing is cut. For more of them call "
                "spmdx.runtime.set_device_count first, or start the program with torchrun."
            )
        for same in self.balance:
            if same.flops >= MOST_REPEATED * self.flops:
                yield rich.text.Text(str(same))

    def _rows_of_ops(self) -> Iterator[rich.table.Table]:
        yield table("Values", ValueReport, self.values)
        if self.fallbacks:
            yield table("Ops without a rule", FallbackReport, self.fallbacks)


__all__ = [
    "BalanceReport",
    "CollectiveReport",
    "FallbackReport",
    "Report",
    "SpanReport",
    "ValueReport",
]
