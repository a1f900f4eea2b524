# SPDX-License-Identifier: Apache-2.0
"""The search: strategies are estimated from plans of parts, and the best are planned whole."""

import dataclasses
import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import spmdx._C as _C
from spmdx._auto.estimates import Estimates, Promise
from spmdx._auto.result import AutoPlan, Candidate
from spmdx._auto.space import Estimated, Space
from spmdx._auto.stages import Strategies
from spmdx._auto.strategy import Strategy
from spmdx._auto.trial import Program
from spmdx._auto.whole import Whole, continued, grown, planned_whole
from spmdx._program.memory_limit import without_memory_limit
from spmdx.errors import ShardingError

NEARLY = 0.15  # of the limit of memory, that an estimate may lack: plans may need less
TRIED = 32  # strategies that are planned whole, if one of them fits
IN_VAIN = 20  # of them, one after the other, after which no better one is expected
WORTH = 0.99  # of the best time: what is less is a better one
NODES = 400_000  # of whole plans, after which no other one is begun
ON_TWO_AXES = 10  # so many more nodes is one, of one microbatch, where "data" and "model" cut all
NODES_OF_A_PLAN = 15_000  # about, at most, unless the fewest microbatches have more
NODES_OF_A_PART = 100  # about, with its backward pass, for a microbatch
FEWEST = 3  # microbatches of a whole plan, if there are so many
ALIKE = 7  # microbatches, from where on each one more is planned as the one before
DOUBLINGS = 6  # of the number of devices, to say how many would do
FAMILIES = "data", "tensor", "pipeline", "hybrid"


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
        in_vain: of them, the last ones that were not better.
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
        self.in_vain += not is_second
        if has_room and step_ns < self.best:
            self.in_vain = self.in_vain if step_ns > WORTH * self.best else 0
            self.best = step_ns

    @property
    def is_enough(self) -> bool:
        """Of plans, if one fits."""
        is_much = self.tried >= TRIED or self.in_vain >= IN_VAIN or self.nodes > NODES
        return is_much and self.best < math.inf


class Search:
    """A search of one program. REQUIRES: nothing but planning goes on."""

    def __init__(self, program: Program, space: Space):
        self._program, self._space = program, space
        self._estimates = Estimates(program, space)
        self._strategies = Strategies(program.model)

    def run(self) -> AutoPlan:
        """The plan. Raises ShardingError where nothing fits."""
        estimated = self._estimates.of_all(self._space.devices)
        if not estimated:
            raise _no_shape(self._space)
        most = NEARLY * self._space.memory_limit
        may_fit = [e for e in estimated if e.estimate.short_bytes <= most]
        if not may_fit:
            raise self._nothing_fits(estimated)
        return self._result(estimated, self.planned(may_fit))

    def planned(self, may_fit: list[Estimated]) -> list[Planned]:
        """Whole plans of those that may be the best, and of more until one fits."""
        wholes: list[Planned] = []
        promise, first, so_far = Promise(may_fit), _first_of_each(may_fit), SoFar()
        while not so_far.is_enough:
            estimated = first.pop(0) if first else promise.best(so_far.best)
            if estimated is None:
                break
            is_second = promise.knows(estimated)
            whole, is_settled = self._attempt(estimated, is_second)
            nodes = _weighed(whole.nodes, estimated.parallelism)
            so_far.note(whole.step_ns, nodes, is_second, self._has_room(whole))
            promise.learn(estimated, whole.step_ns - whole.recomputed_ns)
            if is_settled:
                promise.settle(estimated)
                wholes.append(Planned(estimated, whole))
        if so_far.best == math.inf:
            raise self._nothing_fits(may_fit)
        return wholes

    def _attempt(self, estimated: Estimated, is_second: bool) -> tuple[Whole, bool]:
        """A whole plan, and whether it is what the strategy takes.

        Plans that compute values again take long to find, and are no shorter than without. So the
        first one is made without a limit.
        """
        if is_second or not estimated.estimate.recomputed_ns:
            return self.whole(estimated), True
        with without_memory_limit():
            whole = self.whole(estimated)
        return whole, self._has_room(whole)

    def _has_room(self, whole: Whole) -> bool:
        return not self._space.memory_limit or whole.peak_bytes <= self._space.memory_limit

    def whole(self, estimated: Estimated) -> Whole:
        """The whole plan; where it would have too many nodes, of fewer microbatches."""
        strategy = self._strategies.of(estimated)
        pieces, parallelism = strategy.microbatches, estimated.parallelism
        count = _microbatches_planned(strategy, len(estimated.order))
        whole = self._plan(strategy, count)
        if count == pieces:
            return whole
        fewer = count - strategy.pipe
        if fewer >= strategy.pipe * strategy.chunks:  # both fill the pipeline
            return continued(fewer, self._plan(strategy, fewer), count, whole, pieces)
        few = self._estimates.of(parallelism.with_microbatches(count), estimated.cuts, pieces)
        return grown(whole, count, strategy, few.estimate, estimated.estimate)

    def _plan(self, strategy: Strategy, count: int) -> Whole:
        make = partial(self._space.microbatch, self._space.samples // strategy.microbatches)
        return planned_whole(strategy, self._program, make, count)

    def _result(self, estimated: list[Estimated], wholes: list[Planned]) -> AutoPlan:
        """The best whole plan that fits, then those planned whole, then all others, by time."""
        done = {id(w.estimated) for w in wholes}
        rows = [(w.estimated, self._candidate(w.estimated, w.whole)) for w in wholes]
        rows.sort(key=lambda row: self._rank(row[1]))
        left = [(e, self._candidate(e, None)) for e in estimated if id(e) not in done]
        rows += sorted(left, key=lambda row: self._rank(row[1]))
        chosen, best = rows[0]
        seconds = min(w.whole.peak_seconds for w in wholes)
        shown = []
        for place, (_, candidate) in enumerate(rows):
            # Like is compared with like: plans with plans, estimates with estimates.
            least = best.step_ns if candidate.planned else chosen.estimate.step_ns
            why = self._why(candidate, least) if place else ""
            share = 1e9 * seconds / (max(candidate.step_ns, 1) * self._space.devices)
            shown.append(dataclasses.replace(candidate, why=why, efficiency=share))
        unfit = self._unfit(candidate.strategy.family for candidate in shown)
        return AutoPlan(shown, unfit, self._about(len(estimated), len(wholes)))

    def _rank(self, candidate: Candidate) -> tuple[bool, int]:
        limit = self._space.memory_limit
        return bool(limit and candidate.peak_bytes > limit), candidate.step_ns

    def _candidate(self, estimated: Estimated, whole: Whole | None) -> Candidate:
        figures = whole or estimated.estimate
        return Candidate(
            self._strategies.of(estimated),
            figures.step_ns,
            figures.wire_bytes,
            figures.peak_bytes,
            figures.recomputed_ns,
            0.0,
            whole is not None,
        )

    def _why(self, candidate: Candidate, best: int) -> str:
        limit = self._space.memory_limit
        if limit and candidate.peak_bytes > limit:
            return f"lacks {(candidate.peak_bytes - limit) / 2**30:,.2f} GiB"
        return f"{candidate.step_ns / max(best, 1):.2f} x the time"

    def _unfit(self, families: Iterable[str]) -> dict[str, str]:
        """By family that no candidate is of, why."""
        devices, samples = self._space.devices, self._space.samples
        if devices == 1:
            return {}
        why = {
            "data": f"a batch of {samples} is no multiple of {devices} samples",
            "tensor": f"no dim of a parameter is a multiple of {devices}",
            "pipeline": f"the model has fewer than {devices} parts that hold parameters",
            "hybrid": "no two axes have such sizes",
        }
        there = set(families)
        return {family: why[family] for family in FAMILIES if family not in there}

    def _about(self, estimated: int, planned: int) -> str:
        space, hardware = self._space, _C.topology()["hardware"]
        limit = f", {space.memory_limit / 2**30:,.2f} GiB each" if space.memory_limit else ""
        return (
            f"{type(self._program.model).__name__}, a batch of {space.samples} on "
            f"{space.devices} devices ({hardware['name']}{limit}): {estimated} strategies "
            f"estimated, {planned} of them planned whole"
        )

    def _nothing_fits(self, estimated: list[Estimated]) -> ShardingError:
        """With the smallest number of devices that would do, of twice, four times ... as many."""
        limit, devices = self._space.memory_limit, self._space.devices
        nearest = min(estimated, key=lambda e: e.estimate.short_bytes)
        said = (
            f"no strategy fits {devices} devices of {limit:,} bytes: that which comes nearest, "
            f"{_told(nearest.parallelism)}, lacks {nearest.estimate.short_bytes:,} bytes on a "
            "device, with all activations computed again. Expected devices that hold the model, "
            "the optimizer's state and one microbatch. "
        )
        for times in (2**k for k in range(1, DOUBLINGS + 1)):
            more = self._estimates.of_all(devices * times, roughly=True)
            if any(e.estimate.short_bytes == 0 for e in more):
                return ShardingError(f"{said}Pass devices={devices * times}, or a larger limit.")
        return ShardingError(f"{said}Pass a larger limit, a larger batch, or a smaller model.")


def _first_of_each(fits: list[Estimated]) -> list[Estimated]:
    """The best by estimate of each family and stage of ZeRO."""
    first: dict[tuple[str, int], Estimated] = {}
    for estimated in fits:
        parallelism = estimated.parallelism
        first.setdefault((_family(parallelism), parallelism.zero), estimated)
    return [*first.values()]


def _microbatches_planned(strategy: Strategy, parts: int) -> int:
    """All, unless a plan would have too many nodes: then so many that the rest follows."""
    pieces, most = strategy.microbatches, NODES_OF_A_PLAN // (NODES_OF_A_PART * parts)
    if pieces <= most:
        return pieces
    count = max(FEWEST, min(most, max(ALIKE, strategy.pipe * (strategy.chunks + 1))))
    return pieces if pieces < 2 * count - strategy.pipe else count  # two plans would have as many


def _weighed(nodes: int, parallelism: "_C.Parallelism") -> int:
    """Nodes of a plan by the time that it takes: much is tried where an op may have two axes."""
    both = parallelism.pipe == 1 and parallelism.data > 1 and parallelism.model > 1
    return nodes + both * ON_TWO_AXES * nodes // parallelism.microbatches


def _family(parallelism: "_C.Parallelism") -> str:
    return Strategy(parallelism.data, parallelism.model, parallelism.pipe).family


def _told(parallelism: "_C.Parallelism") -> str:
    sizes = {name: getattr(parallelism, name) for name in ("pipe", "data", "model")}
    axes = ", ".join(f"{name}={size}" for name, size in sizes.items() if size > 1) or "one device"
    zero = f", ZeRO {parallelism.zero}" if parallelism.zero else ""
    return f"{axes}{zero}, microbatches={parallelism.microbatches}"


def _no_shape(space: Space) -> ShardingError:
    return ShardingError(
        f"a batch of {space.samples} samples and this model cannot be laid over {space.devices} "
        "devices: no product of axes divides the batch, dims of parameters and the parts of the "
        "model. Expected a number of devices that does. Pass a power of two, or a larger batch."
    )
