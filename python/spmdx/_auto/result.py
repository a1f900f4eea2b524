# SPDX-License-Identifier: Apache-2.0
"""What a search found: the strategies, what each would take, and the one to use."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from spmdx._auto.code import code_of
from spmdx._auto.strategy import Strategy, split
from spmdx._report.cells import Drawn
from spmdx.errors import naming

SHOWN = 12  # candidates in a table, beside those of the four families


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A strategy, and what a step would take by it.

    Attributes:
        strategy: what is said of the program.
        step_ns: the time of a step in nanoseconds, predicted.
        wire_bytes: what one device receives in a step.
        peak_bytes: of the fullest device.
        recomputed_ns: of the step, to compute activations again.
        efficiency: of the peak rate of all devices, the share that the step needs.
        planned: whether the whole step was planned; else the figures are made of its parts'.
        why: why another one is better; empty for the one that is chosen.
    """

    strategy: Strategy
    step_ns: int
    wire_bytes: int
    peak_bytes: int
    recomputed_ns: int
    efficiency: float
    planned: bool
    why: str = ""


@dataclasses.dataclass(frozen=True, repr=False)
class AutoPlan(Drawn):
    """What :func:`spmdx.auto.search` found; ``print`` draws it as a table.

    Attributes:
        candidates: all that were looked at: the chosen one, then those that were planned whole,
            then others, each by time, and last those that do not fit.
        unfit: by name of a family of which there is none, why.
        about: a line on what was searched.
    """

    candidates: list[Candidate]
    unfit: dict[str, str]
    about: str

    @property
    def strategy(self) -> Strategy:
        """The one that is chosen."""
        return self.candidates[0].strategy

    def apply(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Mark a model and what its optimizer holds, as the strategy says.

        Args:
            model: on device "spmdx".
            optimizer: of its parameters.

        Raises:
            ShardingError: a model that is not the one that was searched for, or of another device.
        """
        with naming("AutoPlan.apply"):
            self.strategy.mark(model, optimizer, self.strategy.mesh())

    def split(self, batch: Any) -> list[Any]:
        """A batch in microbatches on the device, each marked as the strategy says.

        Args:
            batch: tensors with samples along dim 0, alone or in containers.

        Returns:
            What the step takes.

        Raises:
            ShardingError: tensors of different numbers of samples, or of one that the number of
                microbatches does not divide.
        """
        with naming("AutoPlan.split"):
            strategy = self.strategy
            mesh = strategy.mesh()
            parts = split(batch, strategy.microbatches)
            return [strategy.mark_batch(part, mesh) for part in parts]

    def code(self) -> str:
        """The same as lines to paste into the program.

        Returns:
            Python, in which ``model`` and ``optimizer`` are yours, and which defines ``mesh`` and
            ``split(batch)``.
        """
        return code_of(self.strategy)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        import rich.table

        yield self.about
        drawn = rich.table.Table(title="Strategies", title_justify="left")
        for name in _COLUMNS:
            drawn.add_column(name, justify="left" if name in _WORDS else "right", overflow="fold")
        for candidate in self._shown():
            drawn.add_row(*_row(candidate))
        yield drawn
        for family, why in self.unfit.items():
            yield f"{family} parallelism alone: {why}"

    def _shown(self) -> list[Candidate]:
        first = self.candidates[:SHOWN]
        families: dict[str, Candidate] = {}
        for candidate in self.candidates:
            families.setdefault(candidate.strategy.family, candidate)
        return first + [c for c in families.values() if c not in first]


_COLUMNS = (
    "strategy",
    "mesh",
    "microbatches",
    "schedule",
    "ZeRO",
    "step ms",
    "received MB",
    "peak GiB",
    "recomputed",
    "efficiency",
    "figures",
    "why not",
)
_WORDS = {"strategy", "mesh", "schedule", "figures", "why not"}


def _row(candidate: Candidate) -> list[str]:
    s = candidate.strategy
    mesh = ", ".join(f"{name}={size}" for name, size in s.axes.items())
    return [
        s.family,
        mesh,
        str(s.microbatches),
        s.schedule,
        str(s.zero or ""),
        f"{candidate.step_ns / 1e6:,.3f}",
        f"{candidate.wire_bytes / 1e6:,.1f}",
        f"{candidate.peak_bytes / 2**30:,.2f}",
        f"{candidate.recomputed_ns / max(candidate.step_ns, 1):.0%}",
        f"{candidate.efficiency:.0%}",
        "planned" if candidate.planned else "estimated",
        candidate.why,
    ]
