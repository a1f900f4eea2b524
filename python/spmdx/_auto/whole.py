# SPDX-License-Identifier: Apache-2.0
"""A step planned whole, as a strategy lays it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh
from spmdx._auto.parts.laid import lay
from spmdx._auto.strategy import Strategy, tensors_in
from spmdx._auto.trial import Program
from spmdx._auto.unmarked import unmark
from spmdx._modules.zero import forget
from spmdx._program.memory_limit import get_memory_limit

ANOTHER_WAY = 0.5  # of an estimate, that a plan takes
MOST_STEPS = 3  # that are planned until one leaves everything as it found it


@dataclass(frozen=True)
class Whole:
    """What a plan says of a step.

    Attributes:
        step_ns, wire_bytes, peak_bytes: of the device that has most to do.
        peak_seconds: in which one device could do all of it, at the peak rates of its dtypes.
        nodes: of the plan.
        longer_ns: that its stages would take for all microbatches of the strategy.
    """

    step_ns: int
    wire_bytes: int
    peak_bytes: int
    recomputed_ns: int
    peak_seconds: float
    nodes: int
    longer_ns: int = 0


def planned_whole(
    strategy: Strategy, program: Program, microbatch: Callable[[], Any], count: int
) -> Whole:
    """Plans a step of so many microbatches. REQUIRES: nothing but planning goes on.

    It is the first step that leaves what it updates as it found it: an earlier one may leave cut
    what nobody marked, and the next one gathers it.

    Args:
        strategy: what is said of the program.
        program: the user's, without gradients and state of the optimizer.
        microbatch: makes one, of all devices, not marked.
        count: how many of it; at most as many as the strategy has.
    """
    step, model, optimizer = program
    mesh = strategy.mesh()
    held = [*model.parameters(), *model.buffers()]
    unmark(held)
    strategy.mark_unmarked(model, optimizer, mesh)
    try:
        lay(held)
        _make_state(model, optimizer)
        limit = get_memory_limit() or 0
        for _ in range(MOST_STEPS):
            model.zero_grad(set_to_none=True)
            before = _layouts(held, optimizer)
            whole = _planned_step(strategy, step, mesh, [microbatch() for _ in range(count)])
            if _layouts(held, optimizer) == before or 0 < limit < whole.peak_bytes:
                break
        return whole
    finally:
        if optimizer is not None:
            forget(optimizer)
            optimizer.state.clear()
        model.zero_grad(set_to_none=True)


def _planned_step(
    strategy: Strategy, step: Callable[[list[Any]], Any], mesh: Mesh, batches: list[Any]
) -> Whole:
    """With microbatches that come whole to every device, as uploads do."""
    _C.flush()
    step([strategy.mark_batch(batch, mesh) for batch in batches])
    del batches[:]
    _C.flush()
    return Whole(**_C.cost_of_last(strategy.microbatches))


def _layouts(held: list[torch.Tensor], optimizer: torch.optim.Optimizer | None) -> list[Any]:
    """How parameters, buffers and the state of the optimizer lie."""
    state = [] if optimizer is None else tensors_in([dict(s) for s in optimizer.state.values()])
    lies = [_C.sharding_of(t) for t in [*held, *state] if _C.is_lazy(t)]
    return [(sharding is None, sharding) for sharding in lies]  # they compare with their like alone


def _make_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """A first step of the optimizer alone, so that the next one finds its state."""
    if optimizer is None:
        return
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    model.zero_grad(set_to_none=True)
    _C.flush()


def grown(
    whole: Whole, count: int, strategy: Strategy, fewer: "_C.Estimate", all_of_them: "_C.Estimate"
) -> Whole:
    """A plan of few microbatches as one of all of them, whose estimates these are.

    A pipeline takes longer as its schedule does with stages like these. All else grows as the
    estimate does, where the pipeline is filled at least in proportion. Where the plan takes far
    less than its estimate, few are done in another way than many, as by gathering what they read
    in place of summing gradients: then the estimate counts, as it does of the peak, where many are
    to be computed again.
    """
    times = strategy.microbatches / count
    is_filled = count >= strategy.pipe * strategy.chunks
    is_like = whole.step_ns >= ANOTHER_WAY * fewer.step_ns

    def more(by: str) -> int:
        figure, few, many = (getattr(of, by) for of in (whole, fewer, all_of_them))
        if not is_like:
            return int(many)
        in_proportion = round(figure * many / max(few, 1)) if is_filled else 0
        return max(figure + many - few, in_proportion)

    is_piped, again = strategy.pipe > 1 and is_like, all_of_them.recomputed_ns
    return replace(
        whole,
        step_ns=whole.step_ns + whole.longer_ns if is_piped else more("step_ns"),
        wire_bytes=more("wire_bytes"),
        peak_bytes=max(whole.peak_bytes, all_of_them.peak_bytes if again else more("peak_bytes")),
        recomputed_ns=max(round(whole.recomputed_ns * times), again),
        peak_seconds=whole.peak_seconds * times,
    )


def extrapolated(
    half: Whole,
    whole: Whole,
    counts: tuple[int, int, int],
    estimates: "tuple[_C.Estimate, _C.Estimate, _C.Estimate]",
) -> Whole:
    """A plan of some microbatches, and one of about half as many, as one of all of them.

    What the others add is what the estimate says, as far as it told what the second half added.
    REQUIRES: half of them fill the pipeline.

    Args:
        counts: of microbatches: of the half, of the plan, of all.
        estimates: of so many.
    """
    fewer, few, all_of_them = estimates
    rounds = (counts[2] - counts[1]) / (counts[1] - counts[0])

    def more(by: str) -> int:
        planned, said = (getattr(b, by) - getattr(a, by) for a, b in ((half, whole), (fewer, few)))
        rest = getattr(all_of_them, by) - getattr(few, by)
        return getattr(whole, by) + round(rest * planned / said if said > 0 else rounds * planned)

    again = all_of_them.recomputed_ns
    times = counts[2] / counts[1]
    return replace(
        whole,
        step_ns=more("step_ns"),
        wire_bytes=more("wire_bytes"),
        peak_bytes=max(whole.peak_bytes, all_of_them.peak_bytes if again else more("peak_bytes")),
        recomputed_ns=max(round(whole.recomputed_ns * times), again),
        peak_seconds=whole.peak_seconds * times,
    )
