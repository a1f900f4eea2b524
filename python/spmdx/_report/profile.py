# SPDX-License-Identifier: Apache-2.0
"""Profiles: what a step was predicted to take, beside what it took."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spmdx._report.report import Drawn
from spmdx._report.times import measured_timeline

if TYPE_CHECKING:  # what draws is imported when it draws
    import rich.console
    import rich.table
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class MeasuredOp:
    """One op or collective of a step: when it was predicted to run, and when it ran.

    All times are nanoseconds after the step began. What is measured is the median of the steps.

    Attributes:
        lane: ``"compute"`` or ``"wire"``.
        name: the op, or the kind of the collective.
        axes: names of the mesh axes that a collective runs over.
        bytes: what one device receives of a collective.
        source: the user's line.
        predicted_start_ns: by the cost model, on the device that has most to do.
        predicted_end_ns: the same, of its end; the start, if it is free.
        start_ns: measured, in this process.
        end_ns: the same, of its end: all devices of this process have done it.
        device_ns: how long one device took: the longest of the shards of an op, all of a
            collective.
        shards: how many shards this process computed, one after the other.
    """

    lane: str
    name: str
    axes: tuple[str, ...]
    bytes: int
    source: str
    predicted_start_ns: int
    predicted_end_ns: int
    start_ns: int
    end_ns: int
    device_ns: int
    shards: int

    @property
    def predicted_ns(self) -> int:
        """How long it was predicted to take."""
        return self.predicted_end_ns - self.predicted_start_ns

    @property
    def process_ns(self) -> int:
        """How long all devices of this process took together."""
        return self.end_ns - self.start_ns


@dataclasses.dataclass(frozen=True)
class KindTime:
    """All ops of one name in a step, or all collectives of one kind over the same axes."""

    lane: str
    name: str
    axes: tuple[str, ...]
    count: int
    bytes: int
    predicted_ns: int
    device_ns: int
    process_ns: int


@dataclasses.dataclass(frozen=True, repr=False)
class Profile(Drawn):
    """A step as it was predicted and as it was measured; ``print`` draws a table by kind.

    Attributes:
        mesh: as ``"Mesh(data=4, model=2)"``; None where nothing is annotated.
        devices: how many devices this process plays.
        step_ns: from the call of the step until its results are there: the median, in nanoseconds.
        host_ns: the part of it until the call returned: recording, and what the program does.
        predicted_ns: the step on one device, by the cost model.
        ops: what ran in a step, in order.
        wait_ns: how long the step waited for collectives that run beside it.
        plans_made: plans that were made while times were taken; 0 unless steps differ in shape.
    """

    mesh: str | None
    devices: int
    step_ns: int
    host_ns: int
    predicted_ns: int
    ops: list[MeasuredOp]
    wait_ns: int = 0
    plans_made: int = 0

    @property
    def device_ns(self) -> int:
        """What the ops and collectives of one device took, in nanoseconds."""
        return sum(op.device_ns for op in self.ops if op.lane == "compute") + (
            self.wait_ns or sum(op.device_ns for op in self.ops if op.lane == "wire")
        )

    @property
    def process_ns(self) -> int:
        """What the ops and collectives of all devices of this process took, in nanoseconds."""
        return max((op.end_ns for op in self.ops), default=0)

    def by_kind(self) -> list[KindTime]:
        """Sums over ops of one name, and collectives of one kind; those that took most first."""
        groups: dict[tuple[str, str, tuple[str, ...]], list[MeasuredOp]] = {}
        for op in self.ops:
            groups.setdefault((op.lane, op.name, op.axes), []).append(op)
        kinds = [
            KindTime(
                *key,
                len(ops),
                sum(op.bytes for op in ops),
                sum(op.predicted_ns for op in ops),
                sum(op.device_ns for op in ops),
                sum(op.process_ns for op in ops),
            )
            for key, ops in groups.items()
        ]
        return sorted(kinds, key=lambda kind: -kind.process_ns)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain values, for JSON."""
        return {
            **dataclasses.asdict(self),
            "device_ns": self.device_ns,
            "process_ns": self.process_ns,
            "by_kind": [dataclasses.asdict(kind) for kind in self.by_kind()],
        }

    def timeline(self, path: str | os.PathLike | None = None) -> Figure | None:
        """Draw the measured time line below the predicted one.

        Args:
            path: a file to write. ``.png``, ``.svg`` and ``.pdf`` are pictures (drawn by
                matplotlib); ``.json`` is a trace for https://ui.perfetto.dev. None writes nothing.

        Returns:
            The picture where no file is named, which a notebook shows; else None.

        Raises:
            ShardingError: another ending.
            ImportError: a picture, and matplotlib is not installed.

        Example:
            >>> import json, pathlib, tempfile, torch, spmdx
            >>> x = torch.ones(64, 64).to("spmdx")
            >>> profile = spmdx.profile(lambda: (x @ x).sum().item(), steps=1)
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.json"
            >>> profile.timeline(path)
            >>> {event["pid"] for event in json.loads(path.read_text())["traceEvents"]}
            {0, 1}
        """
        if path is None:
            return measured_timeline.figure(self)
        measured_timeline.draw(path, self)
        return None

    def __rich_console__(
        self, console: rich.console.Console, options: Any
    ) -> rich.console.RenderResult:
        yield from self._head()
        yield _table(self.by_kind())

    def _head(self) -> Iterator[str]:
        yield (
            f"{self.mesh or 'no mesh'}: {_us(self.step_ns)} µs a step, of which the host is busy "
            f"for {_us(self.host_ns)} µs"
        )
        yield (
            f"predicted {_us(self.predicted_ns)} µs a step on one device; measured: one device "
            f"{_us(self.device_ns)} µs of ops and collectives, the {self.devices} devices of this "
            f"process one after the other {_us(self.process_ns)} µs"
        )
        if self.wait_ns:
            yield f"{_us(self.wait_ns)} µs of waits for collectives"
        if self.plans_made:
            yield (
                f"{self.plans_made} plans were made while times were taken: call with a larger "
                "warmup, or with steps of one shape"
            )


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:,.1f}"


def _table(kinds: list[KindTime]) -> rich.table.Table:
    import rich.table

    drawn = rich.table.Table(title="Microseconds a step, by kind", title_justify="left")
    for name in ("op or collective", "axes"):
        drawn.add_column(name, overflow="fold")
    for name in ("count", "bytes", "predicted", "one device", "this process"):
        drawn.add_column(name, justify="right")
    for kind in kinds:
        times = (kind.predicted_ns, kind.device_ns, kind.process_ns)
        moved = f"{kind.bytes:,}" if kind.lane == "wire" else ""
        drawn.add_row(kind.name, ", ".join(kind.axes), str(kind.count), moved, *map(_us, times))
    return drawn


__all__ = ["KindTime", "MeasuredOp", "Profile"]
