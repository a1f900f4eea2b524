# SPDX-License-Identifier: Apache-2.0
"""Whole plans of the strategies that may be the best, the most promising first."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import spmdx._C as _C
from spmdx._auto.estimates import SLACK, Estimates, Promise, axes_of
from spmdx._auto.space import Estimated, Space
from spmdx._auto.stages import Strategies
from spmdx._auto.strategy import Strategy
from spmdx._auto.trial import Program
from spmdx._auto.whole import Whole, extrapolated, grown, planned_whole
from spmdx._program.memory_limit import without_memory_limit

TRIED = 32  # strategies that are planned whole
SMALLEST = 12  # that are planned if none of them fits, and kinds of which one is
IN_VAIN = 20  # of them, one after the other, after which no better one is expected
COMPLETED = 4  # of the best, that are planned with all microbatches
CLOSE = 0.6  # of the limit of memory: up to which an estimate fits for sure
WORTH = 0.99  # of the best time: what is less is a better one
NODES = 400_000  # of whole plans, after which no other one is begun
SMALL = 30_000  # likewise, up to which it does not matter how many were planned, and in vain
SMALL_OF_MANY = 120_000  # likewise, up to which such of many microbatches are planned
NODES_OF_USUAL = 100_000  # of plans with other cuts, likewise
ON_TWO_AXES = 3  # nodes are planned in the time of one that has "data" and "model" to choose from
COMPUTED_AGAIN = 5  # likewise, of one in a plan that computes values again
NODES_OF_A_PLAN = 30_000  # about, at most, unless the fewest microbatches have more
NODES_OF_THE_BEST = 150_000  # likewise, of the best one
NODES_OF_A_PREDICTION = 60_000  # likewise, of one that is asked for by itself
ROUNDS = 4  # of microbatches through a pipeline, of which half show how all go on
NODES_OF_A_PART = 100  # about, with its backward pass, for a microbatch, before any was planned
MANY = 4  # microbatches, of which each kind has one that is planned
FEWEST = 3  # microbatches of a whole plan, if there are so many
ALIKE = 6  # microbatches, from where on each one more is planned as the one before


class Planned(NamedTuple):
    """An estimate, and the whole plan."""

    estimated: Estimated
    whole: Whole


@dataclasses.dataclass
class SoFar:
    """What whole plans came to.

    Attributes:
        best: the least time of a step that fits.
        tried: strategies that were planned, with a limit of memory or without.
        in_vain: of them, the last ones that were not better than one that fits.
        nodes: of all plans.
    """

    best: float = math.inf
    tried: int = 0
    in_vain: int = 0
    nodes: int = 0

    def note(self, step_ns: int, nodes: int, is_second: bool, has_room: bool) -> None:
        """One more, of a strategy that was or was not planned before."""
        self.nodes += nodes
        self.tried += not is_second
        self.in_vain += not is_second and self.best < math.inf
        if has_room and step_ns < self.best:
            self.in_vain = self.in_vain if step_ns > WORTH * self.best else 0
            self.best = step_ns

    @property
    def are_many(self) -> bool:
        """Enough."""
        is_enough = self.tried >= TRIED or self.in_vain >= IN_VAIN
        return self.nodes > NODES or is_enough and self.nodes > SMALL


class Turns:
    """Whose turn it is of the strategies that may fit.

    Of each kind one of few microbatches tells what is done once a step, one of many what is done
    for each of them.
    """

    def __init__(self, may_fit: list[Estimated]):
        self.promise = Promise(may_fit)
        self._first = _first_of_each(may_fit, lambda e: e.family)
        self._others = _first_of_each(may_fit, _axes)
        many = [e for e in may_fit if e.parallelism.microbatches >= MANY]
        self._many = _first_of_each(many, _axes)
        self._free: dict[int, Planned] = {}  # that do not fit without computing anything again

    def next(self, so_far: SoFar) -> Estimated | None:
        """One of each kind, until one fits those that nearly do, and then what may be better."""
        if self._first:
            return self._first.pop(0)
        if so_far.best == math.inf and self._free:
            return min(self._free.values(), key=lambda p: p.whole.peak_bytes).estimated
        if so_far.nodes <= SMALL and (other := self._unknown(self._others)):
            return other
        return self.promise.best(so_far.best)

    def next_of_many(self, so_far: SoFar) -> Estimated | None:
        """Those of each kind that tell of many microbatches, and then what may be better for it."""
        if so_far.nodes > SMALL_OF_MANY:
            return None
        return self._unknown(self._many) or self.promise.best(so_far.best)

    def _unknown(self, left: list[Estimated]) -> Estimated | None:
        """The next of these of which nothing is known."""
        while left:
            if not self.promise.knows(other := left.pop(0)):
                return other
        return None

    def took(self, planned: Planned, is_settled: bool) -> None:
        """Notes a plan, and whether it is what the strategy takes."""
        estimated, whole = planned
        self.promise.learn(estimated, whole.step_ns - whole.recomputed_ns)
        if not is_settled:
            self._free[id(estimated)] = planned
            return
        self._free.pop(id(estimated), None)
        self.promise.settle(estimated, whole.recomputed_ns)


class Planner:
    """Plans strategies of one program whole. REQUIRES: nothing but planning goes on."""

    def __init__(
        self, program: Program, space: Space, estimates: Estimates, strategies: Strategies
    ):
        self._program, self._space = program, space
        self._estimates, self._strategies = estimates, strategies
        self._nodes_of_a_part = float(NODES_OF_A_PART)

    def planned(self, may_fit: list[Estimated], estimated: list[Estimated]) -> list[Planned]:
        """Whole plans of those that may be the best; if none fits, of the smallest until one does.

        Args:
            may_fit: those that fit by their estimates, and some that nearly do.
            estimated: all.
        """
        turns, so_far = Turns(may_fit), SoFar()
        wholes: list[Planned] = []
        while not so_far.are_many and (turn := turns.next(so_far)) is not None:
            wholes += self._taken(turn, turns, so_far)
        while so_far.best < math.inf and (turn := turns.next_of_many(so_far)) is not None:
            wholes += self._taken(turn, turns, so_far)
        if so_far.best == math.inf:
            done = {id(p.estimated) for p in wholes}
            wholes += self._first_that_fits([e for e in estimated if id(e) not in done])
            so_far.best = min(map(_time, wholes), default=math.inf)
        return self._completed(self._cut_as_usual(wholes, so_far.best))

    def _taken(self, turn: Estimated, turns: Turns, so_far: SoFar) -> list[Planned]:
        """The whole plan, if it is what the strategy takes."""
        is_second = turns.promise.knows(turn)
        whole, is_settled = self._attempt(turn, is_second)
        nodes = _weighed(whole, turn.parallelism)
        so_far.note(whole.step_ns, nodes, is_second, self._space.has_room(whole.peak_bytes))
        turns.took(Planned(turn, whole), is_settled)
        return [Planned(turn, whole)] if is_settled else []

    def _first_that_fits(self, left: list[Estimated]) -> list[Planned]:
        """Whole plans of those that need least memory by their estimates, until one fits.

        Estimates are too high where plans gather less than ZeRO does, so that each kind is tried.
        """
        wholes: list[Planned] = []
        smallest = sorted(left, key=lambda e: (e.estimate.short_bytes, e.estimate.peak_bytes))
        kinds = _first_of_each(smallest, _axes)
        others = [e for e in smallest if e not in kinds[:SMALLEST]]
        for estimated in [*others[:SMALLEST], *kinds[:SMALLEST]]:
            wholes.append(Planned(estimated, self.whole(estimated)))
            if self._space.has_room(wholes[-1].whole.peak_bytes):
                break
        return wholes

    def _cut_as_usual(self, wholes: list[Planned], best: float) -> list[Planned]:
        """These, of which the best with each size of "model" are cut as is usual, if that is less.

        Cuts are chosen by plans of parts, which do not know what the planner does between them.
        """
        good = [
            p
            for p in wholes
            if self._space.has_room(p.whole.peak_bytes) and p.whole.step_ns <= SLACK * best
        ]
        by_model: dict[int, Planned] = {}
        for planned in sorted(good, key=_time):
            by_model.setdefault(planned.estimated.parallelism.model, planned)
        nodes, instead = 0, dict[int, Planned]()
        for planned in by_model.values():
            for estimated in self._estimates.usually_cut(planned.estimated):
                if nodes > NODES_OF_USUAL:
                    break
                least = instead.get(id(planned), planned)
                whole, is_settled = self._attempt(estimated, is_second=False)
                nodes += _weighed(whole, estimated.parallelism)
                if not is_settled and whole.step_ns < least.whole.step_ns:
                    whole = self.whole(estimated)
                if self._space.has_room(whole.peak_bytes) and whole.step_ns < least.whole.step_ns:
                    instead[id(planned)] = Planned(estimated, whole)
        return [instead.get(id(planned), planned) for planned in wholes]

    def _completed(self, wholes: list[Planned]) -> list[Planned]:
        """These, of which the best has all its microbatches planned, unless that are too many.

        The best of many that follow from fewer is likely one that follows wrongly.
        """
        found, complete = list(wholes), set[int]()
        for _ in range(COMPLETED):
            fits = [p for p in found if self._space.has_room(p.whole.peak_bytes)]
            best = min(fits, key=_time, default=None)
            if best is None or id(best.estimated) in complete:
                break
            complete.add(id(best.estimated))
            strategy, parts = self._strategies.of(best.estimated), len(best.estimated.order)
            pieces = strategy.microbatches
            if self._microbatches_planned(strategy, parts) == (0, pieces):
                break
            if pieces * parts * self._nodes_of_a_part <= NODES_OF_THE_BEST:
                at = found.index(best)
                found[at] = Planned(best.estimated, self._plan(strategy, pieces, parts))
        return found

    def _attempt(self, estimated: Estimated, is_second: bool) -> tuple[Whole, bool]:
        """A whole plan, and whether it is what the strategy takes.

        Plans that compute values again take long to find, and are no shorter than without. So the
        first one is made without a limit.
        """
        if is_second or self._space.has_room(int(estimated.estimate.peak_bytes / CLOSE)):
            return self.whole(estimated), True
        with without_memory_limit():
            whole = self.whole(estimated)
        return whole, self._space.has_room(whole.peak_bytes)

    def whole(self, estimated: Estimated) -> Whole:
        """The whole plan; where it would have too many nodes, of fewer microbatches."""
        strategy = self._strategies.of(estimated)
        few, count = self._microbatches_planned(strategy, len(estimated.order))
        return self._of_all(estimated, strategy, few, count)

    def predicted(self, estimated: Estimated, strategy: Strategy) -> Whole:
        """The whole plan of a strategy by itself: of more microbatches than in a search."""
        pieces, pipe, parts = strategy.microbatches, strategy.pipe, len(estimated.order)
        if pieces > FEWEST and self._most(NODES_OF_A_PREDICTION, parts) < pieces:
            self._plan(strategy, FEWEST, parts)  # it tells how many nodes a part has
        most = self._most(NODES_OF_A_PREDICTION, parts)
        if most >= pieces:
            return self._plan(strategy, pieces, parts)
        rounds = most // pipe  # interleaved stages take turns with so many
        if rounds >= ROUNDS:
            return self._of_all(estimated, strategy, rounds // 2 * pipe, rounds * pipe)
        count = max(FEWEST, min(2 * pipe * strategy.chunks, most // ROUNDS))
        return self._of_all(estimated, strategy, 0, min(pieces, count))

    def _most(self, nodes: int, parts: int) -> int:
        """How many microbatches a plan of so many nodes has."""
        return int(nodes / (self._nodes_of_a_part * parts))

    def _microbatches_planned(self, strategy: Strategy, parts: int) -> tuple[int, int]:
        """All, unless a plan would have too many nodes: then as many as show how the rest goes on.

        Returns:
            The microbatches of a smaller plan, or 0 if there is to be none, and those of the plan.
        """
        pieces, pipe = strategy.microbatches, strategy.pipe
        filling, most = pipe * strategy.chunks, self._most(NODES_OF_A_PLAN, parts)
        few = max(ALIKE, filling)
        if pieces <= max(most, FEWEST):
            return 0, pieces
        if few + pipe <= most:
            more = few + pipe
            return (few, more) if few + more < pieces else (0, pieces)
        return 0, min(pieces, max(FEWEST, min(most, 2 * filling)))

    def _of_all(self, estimated: Estimated, strategy: Strategy, few: int, count: int) -> Whole:
        """From a plan of ``count`` microbatches, and of ``few`` if that is not 0."""
        parts = len(estimated.order)
        whole = self._plan(strategy, count, parts)
        if count == strategy.microbatches:
            return whole
        known = self._estimate_of_few(estimated, strategy, count), estimated.estimate
        if not few:
            return grown(whole, count, strategy, *known)
        counts = few, count, strategy.microbatches
        estimates = self._estimate_of_few(estimated, strategy, few), *known
        return extrapolated(self._plan(strategy, few, parts), whole, counts, estimates)

    def _estimate_of_few(
        self, estimated: Estimated, strategy: Strategy, count: int
    ) -> "_C.Estimate":
        few = estimated.parallelism.with_microbatches(count)
        return self._estimates.of(few, estimated.cuts, strategy.microbatches).estimate

    def _plan(self, strategy: Strategy, count: int, parts: int) -> Whole:
        """With so many microbatches, of a model of so many parts."""
        make = partial(self._space.microbatch, self._space.samples // strategy.microbatches)
        whole = planned_whole(strategy, self._program, make, count)
        self._nodes_of_a_part = whole.nodes / (count * parts)
        return whole


def _axes(estimated: Estimated) -> tuple[int, int, int]:
    return axes_of(estimated.parallelism)


def _time(planned: Planned) -> int:
    return planned.whole.step_ns


def _first_of_each(fits: list[Estimated], kind: Callable[[Estimated], object]) -> list[Estimated]:
    """The best by estimate of each kind and stage of ZeRO."""
    first: dict[tuple[object, int], Estimated] = {}
    for estimated in fits:
        first.setdefault((kind(estimated), estimated.parallelism.zero), estimated)
    return [*first.values()]


def _weighed(whole: Whole, parallelism: "_C.Parallelism") -> int:
    """Nodes of a plan, by the time that it takes to make."""
    has_both = parallelism.data > 1 and parallelism.model > 1
    again = COMPUTED_AGAIN if whole.recomputed_ns else 1
    return whole.nodes * max(ON_TWO_AXES if has_both else 1, again)
