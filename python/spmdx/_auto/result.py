# SPDX-License-Identifier: Apache-2.0
"""What a search found: the strategies, what each would take, and the one to use."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from spmdx._auto.code import code_of
from spmdx._auto.strategy import Strategy, split
from spmdx._base.cells import Drawn
from spmdx._modules.marking import require_module, require_on_device
from spmdx._modules.zero import require_optimizer
from spmdx._pipelines.held import tensors_of
from spmdx._program.memory_limit import limit_to
from spmdx.errors import ShardingError, naming

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
        planned: whether the whole step was planned; else the figures are made of its parts', and
            the time is corrected by the plans of strategies that are most like it.
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
        shapes: of the model's parameters, by name.
        memory_limit: of a device, in bytes, that was planned with; None: there was none.
        limit_was_passed: to the search.
    """

    candidates: list[Candidate]
    unfit: dict[str, str]
    about: str
    shapes: dict[str, tuple[int, ...]]
    memory_limit: int | None = None
    limit_was_passed: bool = False

    @property
    def strategy(self) -> Strategy:
        """The one that is chosen."""
        return self.candidates[0].strategy

    def apply(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Mark a model and what its optimizer holds, as the strategy says.

        What they were marked with before counts no longer: annotations, stages and ZeRO. Trained
        values and the optimizer's state stay. Where the step computes values again, or the memory
        limit was passed to the search, it is the limit of :func:`spmdx.set_memory_limit` from now
        on; else that stays what it is.

        Args:
            model: the one that was searched for, or one like it, on device "spmdx".
            optimizer: of its parameters; None: there is none, and no ZeRO.

        Raises:
            ShardingError: a model that is not the one that was searched for, or of another device;
                an optimizer of other parameters, or none where the strategy has ZeRO.
        """
        with naming("AutoPlan.apply"):
            self._require(model, optimizer)
            self.strategy.mark(model, optimizer, self.strategy.mesh())
            if self._limit is not None:
                limit_to(self._limit)

    @property
    def _limit(self) -> int | None:
        """Without which the step would be planned in another way."""
        needed = self.limit_was_passed or self.candidates[0].recomputed_ns
        return self.memory_limit if needed else None

    def _require(self, model: Any, optimizer: Any) -> None:
        require_module(model)
        require_on_device(tensors_of(model))
        named = dict(model.named_parameters())
        own = {name: tuple(parameter.shape) for name, parameter in named.items()}
        if own != self.shapes:
            other = sorted(own.items() ^ self.shapes.items())[0][0]
            raise ShardingError(
                f"{other} is not in the model as it was searched for. Expected parameters of the "
                "same names and shapes. Pass that model, or search for this one."
            )
        if optimizer is not None:
            require_optimizer(optimizer, named)
        elif self.strategy.zero:
            raise ShardingError(
                f"the strategy has ZeRO {self.strategy.zero}, and there is no optimizer. Expected "
                "the one whose state is cut. Pass it, or search with zero=0."
            )

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
            Python, in which ``model`` and ``optimizer`` are yours, and which defines ``mesh``,
            ``mark(tensor)`` and ``split(batch)``, and sets the memory limit where :meth:`apply`
            does. It takes nothing back that they are marked with.
        """
        return code_of(self.strategy, self._limit)

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
