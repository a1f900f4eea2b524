# SPDX-License-Identifier: Apache-2.0
"""The strategy that the search chooses, beside the best of its space, each planned whole."""

from dataclasses import dataclass
from functools import partial

import spmdx
from spmdx._auto.search import Search
from spmdx._auto.space import Space
from spmdx._auto.strategy import Strategy
from spmdx._auto.trial import Program
from spmdx._auto.whole import Whole, planned_whole
from spmdx._pipelines.kept import planned_alone
from spmdx.auto import SCHEDULES, STAGES
from spmdx.errors import ShardingError

TIGHT = 0.95  # of the bytes of the best one: up to which another one counts as smaller


@dataclass(frozen=True)
class Choice:
    """A strategy, and what it takes.

    Attributes:
        strategy: in a few words.
        step_ns, peak_bytes: of the plan of all its microbatches.
        estimated_ns: of the estimate from parts.
    """

    strategy: str
    step_ns: int
    peak_bytes: int
    estimated_ns: int


@dataclass(frozen=True)
class Outcome:
    """What came out under a limit of memory; 0: none.

    Attributes:
        strategies: how many were planned.
        chosen: by the search; None: it says that nothing fits.
        best: of all; None: nothing fits.
    """

    limit: int
    strategies: int
    chosen: Choice | None
    best: Choice | None

    @property
    def ratio(self) -> float:
        """Of their times; infinite where the search has none, or one that does not fit."""
        if self.best is None:
            return 1.0
        if self.chosen is None or self.limit and self.chosen.peak_bytes > self.limit:
            return float("inf")
        return self.chosen.step_ns / self.best.step_ns


class Everything:
    """The strategies of a search, planned whole with all their microbatches.

    REQUIRES: nothing but planning goes on, and the limit of `space` is set.

    Args:
        free: the same without a limit. A plan of it that fits is the plan with the limit, and one
            that does not fit takes no less time with a limit: of those that are longer than the
            best that was found, none is planned.
    """

    def __init__(self, program: Program, space: Space, free: "Everything | None" = None):
        self._program, self._space = program, space
        self._search = Search(program, space)
        self._estimated = {}
        self.wholes: dict[str, Whole] = {}
        strategies = {}
        for estimated in self._search._estimates.of_all(space.devices):
            strategy = self._search._strategies.of(estimated)
            strategies[told(strategy)] = strategy
            self._estimated[told(strategy)] = estimated.estimate.step_ns
        for name in strategies if free is None else ():
            self.wholes[name] = self._whole(strategies[name])
        if free is not None:
            self._plan_as_far_as_needed(strategies, free.wholes)

    def _plan_as_far_as_needed(self, strategies: dict[str, Strategy], free: dict[str, Whole]):
        best = float("inf")
        for name in sorted(strategies, key=lambda name: free[name].step_ns):
            if free[name].step_ns >= best:
                return
            known = self._fits(free[name])
            whole = free[name] if known else self._whole(strategies[name])
            self.wholes[name] = whole
            if self._fits(whole):
                best = min(best, whole.step_ns)

    def outcome(self) -> Outcome:
        fitting = {name: whole for name, whole in self.wholes.items() if self._fits(whole)}
        best = min(fitting, key=lambda name: fitting[name].step_ns, default=None)
        return Outcome(
            self._space.memory_limit,
            len(self._estimated),
            self._chosen(),
            None if best is None else self._choice(best, fitting[best]),
        )

    def _chosen(self) -> Choice | None:
        try:
            strategy = self._search.run().strategy
        except ShardingError:
            return None
        known = self.wholes.get(told(strategy))
        return self._choice(told(strategy), known or self._whole(strategy))

    def _choice(self, name: str, whole: Whole) -> Choice:
        return Choice(name, whole.step_ns, whole.peak_bytes, self._estimated[name])

    def _fits(self, whole: Whole) -> bool:
        return not self._space.memory_limit or whole.peak_bytes <= self._space.memory_limit

    def _whole(self, strategy: Strategy) -> Whole:
        make = partial(self._space.microbatch, self._space.samples // strategy.microbatches)
        return planned_whole(strategy, self._program, make, strategy.microbatches)


def told(strategy: Strategy) -> str:
    """A strategy in a few words; what "model" cuts follows from its size."""
    axes = " ".join(f"{name}={size}" for name, size in strategy.axes.items())
    parts = [axes, f"microbatches={strategy.microbatches}"]
    parts += [strategy.schedule] if strategy.schedule else []
    parts += [f"zero={strategy.zero}"] if strategy.zero else []
    return " ".join(parts)


def outcomes(
    program: Program, batch: object, devices: int, limit: int | None = None
) -> list[Outcome]:
    """Without a limit of memory, then with one. REQUIRES: within `spmdx.plan_only`.

    Args:
        program: a step, its model and its optimizer.
        batch: what a step takes, of all devices.
        limit: bytes of a device; None: half-way between what the best one needs and the least that
            one needs. Where these are nearly the same, nothing is asked with a limit.
    """
    with planned_alone(program.model, (vars(program.optimizer),)):
        spmdx.set_memory_limit(None)
        free = Everything(program, Space(devices, batch, 0, [*STAGES], [*SCHEDULES]))
        found = [free.outcome()]
        limit = limit or _tight(found[0].best.peak_bytes, free)
        if limit:
            spmdx.set_memory_limit(limit)
            space = Space(devices, batch, limit, [*STAGES], [*SCHEDULES])
            found.append(Everything(program, space, free).outcome())
        return found


def _tight(best: int, free: Everything) -> int:
    least = min(whole.peak_bytes for whole in free.wholes.values())
    return (least + best) // 2 if least < TIGHT * best else 0
