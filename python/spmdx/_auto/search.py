# SPDX-License-Identifier: Apache-2.0
"""The search: strategies are estimated from plans of parts, and the best are planned whole."""

import dataclasses
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import spmdx._C as _C
from spmdx._auto.cuts import Given
from spmdx._auto.estimates import Estimates
from spmdx._auto.result import AutoPlan, Candidate
from spmdx._auto.space import Estimated, Space
from spmdx._auto.stages import Strategies
from spmdx._auto.strategy import Strategy
from spmdx._auto.trial import Program
from spmdx._auto.whole import Whole, extrapolated, grown, planned_whole
from spmdx.errors import ShardingError

SLACK = 1.5  # of the least estimate: up to which strategies are planned whole
PLANNED = 24  # strategies that are planned whole, if one of them fits
NODES = 60_000  # of whole plans, after which no other one is begun
PLANS = 4  # at least, for which these nodes are to do
NODES_OF_A_PART = 100  # about, with its backward pass, for a microbatch
FEWEST = 3  # microbatches of a whole plan, if there are so many
ROUNDS = 4  # of microbatches through a pipeline, of which half show how all go on
DOUBLINGS = 6  # of the number of devices, to say how many would do
FAMILIES = "data", "tensor", "pipeline", "hybrid"


class Planned(NamedTuple):
    """An estimate, and the whole plan."""

    estimated: Estimated
    whole: Whole


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
        fits = [e for e in estimated if e.estimate.short_bytes == 0]
        if not fits:
            raise self._nothing_fits(estimated)
        return self._result(estimated, self.planned(fits))

    def planned(self, fits: list[Estimated]) -> list[Planned]:
        """Whole plans of those that may be the best, and of more until one fits."""
        limit, nodes, found = self._space.memory_limit, 0, False
        wholes: list[Planned] = []
        for estimated, is_wanted in self._by_promise(fits):
            if found and (not is_wanted or nodes > NODES or len(wholes) >= PLANNED):
                continue
            whole = self.whole(estimated)
            nodes += whole.nodes
            wholes.append(Planned(estimated, whole))
            found = found or not limit or whole.peak_bytes <= limit
        if not found:
            raise self._nothing_fits(fits)
        return wholes

    def _by_promise(self, fits: list[Estimated]) -> list[tuple[Estimated, bool]]:
        """The best, that of each family and stage of ZeRO, then all; and which are wanted."""
        first: dict[tuple[str, int], Estimated] = {}
        for estimated in fits:
            parallelism = estimated.parallelism
            first.setdefault((_family(parallelism), parallelism.zero), estimated)
        most = SLACK * fits[0].estimate.step_ns
        chosen = {id(estimated) for estimated in first.values()}
        rest = [e for e in fits if id(e) not in chosen]
        return [(e, True) for e in first.values()] + [(e, e.estimate.step_ns <= most) for e in rest]

    def predict(self, strategy: Strategy) -> Candidate:
        """What one strategy takes. Stages that it does not say are cut as a search cuts them."""
        estimated = self._estimates.given(strategy, Given(strategy, self._program.model))
        if strategy.pipe > 1 and not strategy.stages:
            cut = self._strategies.of(estimated)
            strategy = dataclasses.replace(strategy, stages=cut.stages, chunks=cut.chunks)
        whole = self._whole_by_two(estimated, strategy)
        limit = self._space.memory_limit
        lacks = self._why(candidate_of(strategy, whole), 0) if 0 < limit < whole.peak_bytes else ""
        share = 1e9 * whole.peak_seconds / (max(whole.step_ns, 1) * strategy.devices)
        return dataclasses.replace(candidate_of(strategy, whole), efficiency=share, why=lacks)

    def whole(self, estimated: Estimated) -> Whole:
        """The whole plan; where there are many microbatches, of fewer, and the rest follows."""
        return self._whole_of(estimated, self._strategies.of(estimated))

    def _whole_of(self, estimated: Estimated, strategy: Strategy) -> Whole:
        count = self._microbatches_planned(strategy, len(estimated.order))
        whole = self._planned(strategy, count)
        if count == strategy.microbatches:
            return whole
        few = self._estimate_of_few(estimated, strategy, count)
        return grown(whole, count, strategy, few, estimated.estimate)

    def _whole_by_two(self, estimated: Estimated, strategy: Strategy) -> Whole:
        """The whole plan; of many microbatches plans of few and of half as many show the rest."""
        most = NODES // (NODES_OF_A_PART * len(estimated.order))
        if most >= strategy.microbatches:
            return self._planned(strategy, strategy.microbatches)
        rounds = most // strategy.pipe  # interleaved stages take turns with so many
        if rounds < ROUNDS:
            return self._whole_of(estimated, strategy)
        counts = rounds // 2 * strategy.pipe, rounds * strategy.pipe
        half, whole = (self._planned(strategy, n) for n in counts)
        fewer, few = (self._estimate_of_few(estimated, strategy, n) for n in counts)
        estimates = fewer, few, estimated.estimate
        return extrapolated(half, whole, (*counts, strategy.microbatches), estimates)

    def _planned(self, strategy: Strategy, count: int) -> Whole:
        """Whole, with so many microbatches."""
        samples = self._space.samples // strategy.microbatches
        return planned_whole(
            strategy, self._program, partial(self._space.microbatch, samples), count
        )

    def _estimate_of_few(
        self, estimated: Estimated, strategy: Strategy, count: int
    ) -> "_C.Estimate":
        few = estimated.parallelism.with_microbatches(count)
        return self._estimates.of(few, estimated.cuts, strategy.microbatches).estimate

    def _microbatches_planned(self, strategy: Strategy, parts: int) -> int:
        """As many as fill a pipeline twice, unless a plan would have too many nodes."""
        many = max(FEWEST, 2 * strategy.pipe * strategy.chunks)
        most = max(FEWEST, NODES // (PLANS * NODES_OF_A_PART * parts))
        return min(strategy.microbatches, many, most)

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
        return candidate_of(self._strategies.of(estimated), whole or estimated.estimate)

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


def candidate_of(strategy: Strategy, figures: "Whole | _C.Estimate") -> Candidate:
    """A strategy with the figures of its plan, or those that are estimated."""
    return Candidate(
        strategy,
        figures.step_ns,
        figures.wire_bytes,
        figures.peak_bytes,
        figures.recomputed_ns,
        0.0,
        isinstance(figures, Whole),
    )


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
