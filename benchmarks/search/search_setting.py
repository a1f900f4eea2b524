# SPDX-License-Identifier: Apache-2.0
"""The strategy that the search chooses, beside the best of its space, each planned whole."""

import json
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

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


class Plans:
    """Figures of whole plans, kept in a file for another run with the same planner.

    Args:
        path: of the file, which may not be there; None: they are not kept.
    """

    def __init__(self, path: Path | None = None):
        self._path, self._known = path, dict[str, list[float]]()
        if path and path.exists():
            self._known = json.loads(path.read_text())

    def get(self, strategy: Strategy, limit: int, make: Callable[[], Whole]) -> Whole:
        key = sha256(f"{limit} {strategy}".encode()).hexdigest()
        if key not in self._known:
            self._known[key] = [*astuple(make())]
        return Whole(*self._known[key])

    def save(self) -> None:
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._known))


class Everything:
    """The strategies of a search, planned whole with all their microbatches.

    REQUIRES: nothing but planning goes on, and the limit of `space` is set.

    Args:
        plans: that are known.
        free: the same without a limit. A plan of it that fits is the plan with the limit, and one
            that does not fit takes no less time with a limit: of those that are longer than the
            best that was found, none is planned.
        cuts: also with what Megatron-LM cuts, where "model" is to cut something else.
    """

    def __init__(
        self,
        program: Program,
        space: Space,
        plans: Plans,
        free: "Everything | None" = None,
        cuts: bool = False,
    ):
        self._program, self._space, self._plans = program, space, plans
        self._search = Search(program, space)
        self._estimated: dict[str, int] = {}
        self._strategies: dict[str, Strategy] = {}
        self.wholes: dict[str, Whole] = {}
        for estimated in self._search._estimates.of_all(space.devices):
            likewise = self._search._estimates.usually_cut(estimated) if cuts else []
            for each in (estimated, *likewise):
                strategy = self._search._strategies.of(each)
                name = self._name(strategy)
                self._estimated[name] = each.estimate.step_ns
                self._strategies[name] = strategy
        if free is None:
            self.wholes = {name: self._whole(s) for name, s in self._strategies.items()}
        else:
            self._plan_as_far_as_needed(free.wholes)

    def _plan_as_far_as_needed(self, free: dict[str, Whole]) -> None:
        best = float("inf")
        for name in sorted(self._strategies, key=lambda name: free[name].step_ns):
            if free[name].step_ns >= best:
                return
            known = free[name] if self._fits(free[name]) else None
            self.wholes[name] = known or self._whole(self._strategies[name])
            if self._fits(self.wholes[name]):
                best = min(best, self.wholes[name].step_ns)

    def outcome(self) -> Outcome:
        fitting = {name: whole for name, whole in self.wholes.items() if self._fits(whole)}
        best = min(fitting, key=lambda name: fitting[name].step_ns, default=None)
        return Outcome(
            self._space.memory_limit,
            len(self._strategies),
            self._chosen(),
            None if best is None else self._choice(best, fitting[best]),
        )

    def _chosen(self) -> Choice | None:
        try:
            strategy = self._search.run().strategy
        except ShardingError:
            return None
        name = self._name(strategy)
        return self._choice(name, self.wholes.get(name) or self._whole(strategy))

    def _name(self, strategy: Strategy) -> str:
        """In a few words; one that differs by what "model" cuts alone is said to."""
        name = told(strategy)
        while self._strategies.get(name, strategy) != strategy:
            name += ", cut otherwise"
        return name

    def _choice(self, name: str, whole: Whole) -> Choice:
        return Choice(name, whole.step_ns, whole.peak_bytes, self._estimated.get(name, 0))

    def _fits(self, whole: Whole) -> bool:
        return self._space.has_room(whole.peak_bytes)

    def _whole(self, strategy: Strategy) -> Whole:
        make = partial(self._space.microbatch, self._space.samples // strategy.microbatches)
        whole = partial(planned_whole, strategy, self._program, make, strategy.microbatches)
        return self._plans.get(strategy, self._space.memory_limit, whole)


def told(strategy: Strategy) -> str:
    """A strategy in a few words, without what "model" cuts."""
    axes = " ".join(f"{name}={size}" for name, size in strategy.axes.items())
    parts = [axes, f"microbatches={strategy.microbatches}"]
    parts += [strategy.schedule] if strategy.schedule else []
    parts += [f"zero={strategy.zero}"] if strategy.zero else []
    return " ".join(parts)


def outcomes(
    program: Program,
    batch: object,
    devices: int,
    limit: int | None = None,
    cuts: bool = False,
    plans: Plans | None = None,
) -> list[Outcome]:
    """Without a limit of memory, then with one. REQUIRES: within `spmdx.plan_only`.

    Args:
        program: a step, its model and its optimizer.
        batch: what a step takes, of all devices.
        limit: bytes of a device; None: half-way between what the best one needs and the least that
            one needs. Where these are nearly the same, nothing is asked with a limit.
        cuts: also strategies with what Megatron-LM cuts.
        plans: of this setting that are known, to which others are added.
    """
    plans = plans or Plans()
    with planned_alone(program.model, (vars(program.optimizer),)):
        spmdx.set_memory_limit(None)
        space = Space(devices, batch, 0, [*STAGES], [*SCHEDULES])
        free = Everything(program, space, plans, cuts=cuts)
        found = [free.outcome()]
        limit = limit or _tight(found[0].best.peak_bytes, free)
        if limit:
            spmdx.set_memory_limit(limit)
            space = Space(devices, batch, limit, [*STAGES], [*SCHEDULES])
            found.append(Everything(program, space, plans, free, cuts).outcome())
        spmdx.set_memory_limit(None)
        plans.save()
        return found


def _tight(best: int, free: Everything) -> int:
    least = min(whole.peak_bytes for whole in free.wholes.values())
    return (least + best) // 2 if least < TIGHT * best else 0
