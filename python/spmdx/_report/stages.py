# SPDX-License-Identifier: Apache-2.0
"""Reports of pipelines: what stages hold, do and send, and how long they are idle."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spmdx._base.cells import Drawn, table

if TYPE_CHECKING:
    import rich.table


@dataclasses.dataclass(frozen=True)
class StageReport:
    """One stage of a pipeline.

    Attributes:
        stage: its number.
        parameter_bytes: what each of its devices keeps from step to step, as far as the step reads
            it: parameters, gradients and the optimizer's state.
        forward_ns: of one microbatch on the average, predicted by the cost model.
        backward_ns: likewise.
        in_flight: of how many microbatches it keeps activations at most.
    """

    stage: int
    parameter_bytes: int
    forward_ns: int
    backward_ns: int
    in_flight: int


@dataclasses.dataclass(frozen=True)
class SendReport:
    """What one stage sends to another in a step.

    Attributes:
        sender: the stage.
        receiver: the other one; -1 means all devices of the mesh.
        bytes: what one of its devices receives in a step.
        count: in how many pieces.
        source: the user's line that made what is sent, as ``"train.py:41"``.
    """

    sender: int
    receiver: int
    bytes: int
    count: int
    source: str


@dataclasses.dataclass(frozen=True, repr=False)
class PipelineReport(Drawn):
    """The stages of a plan and their schedule.

    Attributes:
        schedule: its name or its table.
        microbatches: how many the step has.
        stages: by number.
        sends: what crosses from stage to stage, by line.
        bubble: what all devices are idle for, ÷ what all of them work, predicted.
        step_ns: from the first action to the end of the last, predicted; without the optimizer.
        actions: tuples of the coordinate along the axis, the action as ``"F0"``, and its start and
            end in ns, by start.
    """

    schedule: str
    microbatches: int
    stages: list[StageReport]
    sends: list[SendReport]
    bubble: float
    step_ns: int
    actions: list[tuple[int, str, float, float]]

    def __str__(self) -> str:
        name = self.schedule if "\n" not in self.schedule else "a table of its own"
        return (
            f"{len(self.stages)} stages, {self.microbatches} microbatches, schedule {name}: idle "
            f"for {self.bubble:.0%} of the work"
        )

    def __rich_console__(self, console: Any, options: Any) -> Iterator[str | rich.table.Table]:
        yield str(self)
        yield table("Stages", StageReport, self.stages)
        yield table("Sent from stage to stage", SendReport, self.sends)


def pipeline_report(row: dict[str, Any]) -> PipelineReport:
    """The report of what C++ tells as a dict."""
    stages = [
        StageReport(
            i, s["parameter_bytes"], round(s["forward_ns"]), round(s["backward_ns"]), s["in_flight"]
        )
        for i, s in enumerate(row["stages"])
    ]
    sends = [SendReport(**send) for send in row["sends"]]
    step = round(row["step_ns"])
    return PipelineReport(
        row["schedule"], row["microbatches"], stages, sends, row["bubble"], step, row["actions"]
    )
