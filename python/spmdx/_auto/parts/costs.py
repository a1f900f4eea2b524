# SPDX-License-Identifier: Apache-2.0
"""Parts of a model, what each costs, and the chain that they are."""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, NamedTuple

import torch

import spmdx._C as _C
from spmdx._auto.parts.checkpoints import Again, computed_again


@dataclass
class Part:
    """A part of the model, as ``csrc/passes/parallelism/estimate.h`` has it."""

    forward_ns: int = 0
    backward_ns: int = 0
    wire_bytes: int = 0
    activation_bytes: int = 0
    transient_bytes: int = 0
    output_bytes: int = 0
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    state_bytes: int = 0
    fixed_bytes: int = 0
    accumulate_ns: int = 0
    update_ns: int = 0
    ops: int = 0
    accumulate_ops: int = 0
    update_ops: int = 0


@dataclass
class Run:
    """A part that was planned, and what it gave.

    Attributes:
        part: what it costs.
        outputs: without a history.
        gradients: of inputs and parameters that have one; empty where nothing learns.
        forward: what was planned of the forward pass.
        again: what it costs where it is computed again for its own backward pass alone.
    """

    part: Part
    outputs: Any
    gradients: Sequence[torch.Tensor | None]
    forward: "_C.PlannedCost"
    again: Part | None = None


class Call(NamedTuple):
    """A unit that was called.

    Attributes:
        unit: its name.
        run: what is known of it.
        before: what the program does between the unit before it and this one; None where this one
            is computed again.
        beside_bytes: that are kept from there.
        within: the checkpoints around it, the outermost first.
    """

    unit: str
    run: Run
    before: "_C.PlannedCost | None"
    beside_bytes: int
    within: tuple[Any, ...]

    def part(self, again: Again, among_bytes: int) -> Part:
        """What it costs.

        Args:
            again: how often it is computed again.
            among_bytes: activations of parts that are computed again with it, and held beside it.
        """
        part, run = self.run.part, self.run
        if again.is_last and run.again is not None:
            part = run.again
        kept = 0 if self.within else part.activation_bytes
        before_ns, before_ops = (self.before.ns, self.before.ops) if self.before else (0, 0)
        return replace(
            part,
            forward_ns=part.forward_ns + before_ns,
            backward_ns=part.backward_ns + again.times * part.forward_ns,
            wire_bytes=part.wire_bytes + again.times * run.forward.wire_bytes,
            ops=part.ops + before_ops + again.times * run.forward.ops,
            activation_bytes=kept + self.beside_bytes,
            transient_bytes=part.transient_bytes + among_bytes,
        )


def parts_of(calls: Sequence[Call]) -> list[Part]:
    """What each call costs, with what its checkpoints compute again."""
    learn = {id(c) for call in calls if call.run.part.backward_ns for c in call.within}
    within = [tuple(id(c) for c in call.within if id(c) in learn) for call in calls]
    parts = []
    for at, (call, again) in enumerate(zip(calls, computed_again(within), strict=True)):
        path = within[at]
        held = [
            c.run.part.activation_bytes for c, w in zip(calls, within, strict=True) if w == path
        ]
        own = call.run.part.activation_bytes
        among = 0 if not path else sum(held) - (own if again.is_last else 0)
        parts.append(call.part(again, among))
    return parts


def cost_of(chain: Sequence[Part]) -> "_C.ModelCost":
    """Parts that are the same as one, and their order."""
    places: dict[tuple, int] = {}
    for part in chain:
        places.setdefault(astuple(part), len(places))
    distinct = {places[astuple(part)]: part for part in chain}
    parts = [asdict(distinct[place]) for place in range(len(places))]
    return _C.ModelCost(parts, [places[astuple(part)] for part in chain])
