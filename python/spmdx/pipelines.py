# SPDX-License-Identifier: Apache-2.0
"""Schedules of pipelines as data: made by name, written down, checked, simulated and drawn."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import spmdx._C as _C
from spmdx._base.arguments import integers, require_path
from spmdx._report.times.schedule_pictures import draw
from spmdx.errors import ShardingError, bare, naming

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Times = float | Sequence[float]


class TimedAction(NamedTuple):
    """When one action of a schedule runs.

    Attributes:
        rank: of the pipeline.
        stage: of the model; rank r of p holds the stages r, p + r, 2p + r ….
        kind: ``"F"`` forward, ``"B"`` backward, or its halves ``"I"``, the gradient of the input,
            and ``"W"``, that of the weights.
        microbatch: its number.
        start: the time, in the unit of the times that were simulated.
        end: the same, of its end.
    """

    rank: int
    stage: int
    kind: str
    microbatch: int
    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What :meth:`Schedule.simulate` finds. Times are in the unit of those that it is given.

    Attributes:
        total: time from the first start to the last end.
        bubble: what all ranks together are idle, divided by what they work.
        idle: of each rank.
        in_flight: the most activations, of a microbatch and a stage, that each rank holds at a
            time, from their forward to the end of their backward.
        in_flight_to_input: those of them whose input has no gradient yet; fewer where backwards
            are in halves.
        actions: by start, then by rank; what an action waits for precedes it.
    """

    total: float
    bubble: float
    idle: list[float]
    in_flight: list[int]
    in_flight_to_input: list[int]
    actions: list[TimedAction]

    def draw(self, path: str | os.PathLike | None = None) -> "Figure | None":
        """Draw the schedule: a lane a rank, with the numbers of microbatches.

        Args:
            path: a picture to write, ``.png``, ``.svg`` or ``.pdf``; None writes nothing.

        Returns:
            The picture where no file is named, which a notebook shows; else None.

        Raises:
            ShardingError: another ending.
            ImportError: matplotlib is not installed.

        Example:
            >>> import spmdx, tempfile
            >>> simulation = spmdx.pipelines.Schedule.make("1f1b", 4, 8).simulate()
            >>> simulation.draw(tempfile.mkdtemp() + "/1f1b.png")
        """
        with naming("Simulation.draw"):
            return draw(path, self)


class Schedule:
    """What each rank of a pipeline does, in its order, as a table of actions.

    :meth:`make`, :meth:`parse` and :meth:`read_csv` give one. Its text has a line a rank:
    ``F0`` is the forward of microbatch 0, ``B0`` its backward, ``I0`` and ``W0`` the halves of a
    backward, the gradients of the input and of the weights. ``1.F0`` is of the rank's chunk 1:
    where ranks hold several stages, chunk k of rank r of p is stage k·p + r.

    Example:
        >>> import spmdx
        >>> print(spmdx.pipelines.Schedule.make("1f1b", 2, 3))
        F0 F1 B0 F2 B1 B2
        F0 B0 F1 B1 F2 B2
    """

    def __init__(self, table: "_C.PipelineSchedule"):
        self._table = table

    @classmethod
    def make(cls, kind: str, ranks: int, microbatches: int) -> "Schedule":
        """A schedule that has a name.

        Args:
            kind: ``"gpipe"``, all forwards and then all backwards; ``"1f1b"``, a backward as soon
                as there can be one; ``"interleaved:2"``, the same with 2 chunks a rank, or as
                many as you write; ``"zb-h1"``, 1F1B with the gradients of weights put off into
                the bubble, at the peak of 1F1B's memory.
            ranks: of the pipeline.
            microbatches: any number; for interleaved schedules best a multiple of the ranks.

        Returns:
            The schedule, which can run.

        Raises:
            ShardingError: another kind, or a number below 1.

        Example:
            >>> import spmdx
            >>> make = spmdx.pipelines.Schedule.make
            >>> [make(kind, 4, 8).simulate().total for kind in ("gpipe", "1f1b", "zb-h1")]
            [33.0, 33.0, 27.0]

        Source: Huang et al., GPipe, 2019; Narayanan et al., Memory-Efficient Pipeline-Parallel DNN
        Training, 2021, and Efficient Large-Scale Language Model Training on GPU Clusters Using
        Megatron-LM, 2021; Qi et al., Zero Bubble Pipeline Parallelism, 2024.
        """
        with naming("Schedule.make"):
            _require_text(kind, "the kind", "1f1b")
            (ranks,) = integers([ranks], "ranks", "Write 4.")
            (microbatches,) = integers([microbatches], "microbatches", "Write 8.")
            return cls(_C.make_schedule(kind, ranks, microbatches))

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """A schedule from its text form.

        Args:
            text: a line a rank, of actions with blanks between them.

        Returns:
            The schedule; :meth:`check` says whether it can run.

        Raises:
            ShardingError: a word that is no action, with its line and column.

        Example:
            >>> import spmdx
            >>> spmdx.pipelines.Schedule.parse("F0 F1 B1 B0").microbatches
            2
        """
        with naming("Schedule.parse"):
            _require_text(text, "the text", "F0 B0")
            return cls(_C.parse_schedule(text))

    @classmethod
    def read_csv(cls, path: str | os.PathLike) -> "Schedule":
        """A schedule that :meth:`write_csv` or ``torch.distributed.pipelining`` wrote to a file.

        Args:
            path: a CSV file with a row a rank, of actions as ``4F0``: the forward of microbatch 0
                in stage 4. Empty cells, and what sends, receives, gathers and frees, are left out.

        Returns:
            The schedule; :meth:`check` says whether it can run.

        Raises:
            ShardingError: no such file, a cell that is no action, or a stage that the row's rank
                has not: they go round the ranks.

        Example:
            >>> import spmdx, tempfile
            >>> Schedule, path = spmdx.pipelines.Schedule, tempfile.mkdtemp() + "/schedule.csv"
            >>> Schedule.make("zb-h1", 4, 8).write_csv(path)
            >>> Schedule.read_csv(path) == Schedule.make("zb-h1", 4, 8)
            True
        """
        with naming("Schedule.read_csv"):
            require_path(path, "schedule.csv")
            try:
                return cls(_C.parse_schedule_csv(Path(path).read_text(encoding="utf-8")))
            except ShardingError as error:
                raise ShardingError(f"{path}, {bare(error)}") from None
            except (OSError, ValueError) as error:
                raise ShardingError(
                    f"{path} cannot be read: {type(error).__name__}: {error}. Expected a CSV file "
                    "with a row a rank. Write one with Schedule.write_csv."
                ) from None

    def write_csv(self, path: str | os.PathLike) -> None:
        """Write the schedule as ``torch.distributed.pipelining`` does, in its form "compute_only".

        Args:
            path: the file; replaced where it exists.

        Raises:
            ShardingError: it is no path.
            OSError: it cannot be written.

        Example:
            >>> import pathlib, spmdx, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "schedule.csv"
            >>> spmdx.pipelines.Schedule.make("gpipe", 2, 1).write_csv(path)
            >>> path.read_text().split()
            ['0F0,0B0', '1F0,1B0']
        """
        with naming("Schedule.write_csv"):
            require_path(path, "schedule.csv")
        Path(path).write_text(self._table.csv(), encoding="utf-8", newline="")

    @property
    def ranks(self) -> int:
        """How many ranks it is for."""
        return self._table.ranks

    @property
    def chunks(self) -> int:
        """How many stages each rank holds."""
        return self._table.chunks

    @property
    def microbatches(self) -> int:
        """How many microbatches it is for: one more than the largest number."""
        return self._table.microbatches

    def check(self) -> None:
        """Raise unless the schedule can run.

        Each stage runs each microbatch's forward once, and then its backward, whole or in halves;
        and all ranks come to their end, though a rank waits for what it receives.

        Raises:
            ShardingError: what is wrong, with the rank and the position of an action and what it
                waits for.

        Example:
            >>> import spmdx
            >>> spmdx.pipelines.Schedule.parse("F1 F0 B0 B1").check()
        """
        with naming("Schedule.check"):
            self._table.check()

    def simulate(
        self,
        forward: Times = 1.0,
        backward_input: Times = 1.0,
        backward_weight: Times = 1.0,
        send: float = 0.0,
    ) -> Simulation:
        """Run the schedule by given times: each action as soon as what it waits for is there.

        Args:
            forward: how long a stage's forward of a microbatch takes, in any unit: a number for
                all stages, or one for each. Where ranks hold several chunks, each is a stage.
            backward_input: the same of the gradient of the input.
            backward_weight: the same of the gradient of the weights; a full backward takes both.
            send: how long after an action another rank has its result. Neither rank is kept from
                other work.

        Returns:
            Times, idle time and activations in flight.

        Raises:
            ShardingError: a time that is no number, negative, not finite, or not there for each
                stage; a schedule that cannot run.

        Example:
            >>> import spmdx
            >>> simulation = spmdx.pipelines.Schedule.make("1f1b", 4, 8).simulate()
            >>> simulation.total, simulation.bubble, simulation.in_flight
            (33.0, 0.375, [4, 3, 2, 1])
        """
        with naming("Schedule.simulate"):
            stages = self.ranks * self.chunks
            if not _is_number(send):
                raise ShardingError(f"send is {send!r}. Expected a number. Write 0.5.")
            found = self._table.simulate(
                _times(forward, "forward", stages),
                _times(backward_input, "backward_input", stages),
                _times(backward_weight, "backward_weight", stages),
                float(send),
            )
        return Simulation(**{**found, "actions": [*map(TimedAction._make, found["actions"])]})

    def __str__(self) -> str:
        return self._table.text()

    def __repr__(self) -> str:
        return f"Schedule.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple:
        return Schedule.parse, (str(self),)


def _require_text(value: object, what: str, example: str) -> None:
    if not isinstance(value, str):
        raise ShardingError(f"{what} is {value!r}. Expected a string. Write {example!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _times(given: Times, name: str, stages: int) -> list[float]:
    """A number for each stage."""
    values = given if isinstance(given, Sequence) else [given] * stages
    if not all(map(_is_number, values)):
        raise ShardingError(
            f"{name} is {given!r}. Expected a number, or one for each stage. Write 1.0."
        )
    if len(values) != stages:
        raise ShardingError(
            f"{name} has {len(values)} numbers. Expected {stages}, one for each stage. Write one "
            "number for all."
        )
    return [float(value) for value in values]
