# SPDX-License-Identifier: Apache-2.0
"""The search: strategies are estimated from plans of parts, and the best are planned whole."""

import dataclasses

import spmdx._C as _C
from spmdx._auto.cuts import Given
from spmdx._auto.estimates import Estimates, Promise
from spmdx._auto.planner import Planned, Planner
from spmdx._auto.result import AutoPlan, Candidate
from spmdx._auto.space import Estimated, Space
from spmdx._auto.stages import Strategies
from spmdx._auto.strategy import Strategy
from spmdx._auto.trial import Program
from spmdx._auto.unfit import unfit
from spmdx._auto.whole import Whole
from spmdx._base.sizes import in_bytes
from spmdx.errors import ShardingError

NEARLY = 0.25  # of the limit of memory, that an estimate may lack: plans may need less
DOUBLINGS = 6  # of the number of devices, to say how many would do


class Search:
    """A search of one program. REQUIRES: nothing but planning goes on."""

    def __init__(self, program: Program, space: Space):
        self._program, self._space = program, space
        self._estimates = Estimates(program, space)
        self._strategies = Strategies(program.model)
        self._planner = Planner(program, space, self._estimates, self._strategies)

    def run(self) -> AutoPlan:
        """The plan. Raises ShardingError where nothing fits."""
        estimated = self._estimates.of_all(self._space.devices)
        if not estimated:
            raise _no_shape(self._space)
        most = NEARLY * self._space.memory_limit
        may_fit = [e for e in estimated if e.estimate.short_bytes <= most]
        wholes = self._planner.planned(may_fit, estimated)
        if not any(self._space.has_room(planned.whole.peak_bytes) for planned in wholes):
            limit = self._space.memory_limit
            lacking = [(e, w.peak_bytes - limit) for e, w in wholes]
            raise self._nothing_fits(lacking or [(e, e.estimate.short_bytes) for e in estimated])
        return self._result(estimated, wholes)

    def predict(self, strategy: Strategy) -> Candidate:
        """What one strategy takes. Stages that it does not say are cut as a search cuts them."""
        estimated = self._estimates.given(strategy, Given(strategy, self._program.model))
        if strategy.pipe > 1 and not strategy.stages:
            cut = self._strategies.of(estimated)
            strategy = dataclasses.replace(strategy, stages=cut.stages, chunks=cut.chunks)
        whole = self._planner.predicted(estimated, strategy)
        lacks = "" if self._space.has_room(whole.peak_bytes) else self._why(whole, 0)
        share = 1e9 * whole.peak_seconds / (max(whole.step_ns, 1) * strategy.devices)
        return dataclasses.replace(candidate_of(strategy, whole), efficiency=share, why=lacks)

    def _result(self, estimated: list[Estimated], wholes: list[Planned]) -> AutoPlan:
        """The best whole plan that fits, then those planned whole, then all others, by time."""
        done = [w.estimated.parallelism for w in wholes]
        rows = [(w.estimated, self._candidate(w.estimated, w.whole)) for w in wholes]
        rows.sort(key=lambda row: self._rank(row[1]))
        promise = Promise(estimated)
        for each, whole in wholes:
            promise.learn(each, whole.step_ns - whole.recomputed_ns)
            promise.settle(each, whole.recomputed_ns)
        left = [
            (e, dataclasses.replace(self._candidate(e, None), step_ns=round(promise.step_ns(e))))
            for e in estimated
            if e.parallelism not in done
        ]
        rows += sorted(left, key=lambda row: self._rank(row[1]))
        best = rows[0][1]
        seconds = min(w.whole.peak_seconds for w in wholes)
        shown = []
        for place, (_, candidate) in enumerate(rows):
            why = self._why(candidate, best.step_ns) if place else ""
            share = 1e9 * seconds / (max(candidate.step_ns, 1) * self._space.devices)
            shown.append(dataclasses.replace(candidate, why=why, efficiency=share))
        families = {candidate.strategy.family for candidate in shown}
        lacking = unfit(families, self._space, self._estimates)
        named = self._program.model.named_parameters()
        shapes = {name: tuple(parameter.shape) for name, parameter in named}
        about = self._about(len(estimated), len(wholes))
        return AutoPlan(shown, lacking, about, shapes, self._space.memory_limit or None)

    def _rank(self, candidate: Candidate) -> tuple[bool, int]:
        return not self._space.has_room(candidate.peak_bytes), candidate.step_ns

    def _candidate(self, estimated: Estimated, whole: Whole | None) -> Candidate:
        return candidate_of(self._strategies.of(estimated), whole or estimated.estimate)

    def _why(self, figures: Candidate | Whole, best: int) -> str:
        if not self._space.has_room(figures.peak_bytes):
            lacking = figures.peak_bytes - self._space.memory_limit
            return f"lacks {in_bytes(lacking)}"
        return f"{figures.step_ns / max(best, 1):.2f} x the time"

    def _about(self, estimated: int, planned: int) -> str:
        space, hardware = self._space, _C.topology()["hardware"]
        limit = f", {in_bytes(space.memory_limit)} each" if space.memory_limit else ""
        return (
            f"{type(self._program.model).__name__}, a batch of {space.samples} on "
            f"{space.devices} devices ({hardware['name']}{limit}): {estimated} strategies "
            f"estimated, {planned} of them planned whole"
        )

    def _nothing_fits(self, lacking: list[tuple[Estimated, int]]) -> ShardingError:
        """With the smallest number of devices that would do, of twice, four times ... as many.

        Args:
            lacking: strategies, and bytes that each lacks.
        """
        limit, devices = self._space.memory_limit, self._space.devices
        nearest, short_bytes = min(lacking, key=lambda pair: pair[1])
        said = (
            f"no strategy fits {devices} devices of {limit:,} bytes: that which comes nearest, "
            f"{_told(nearest.parallelism)}, lacks {short_bytes:,} bytes on a "
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
