# SPDX-License-Identifier: Apache-2.0
"""What a step does beside calling parts: the loss, gradients that it looks at, its update."""

from collections.abc import Sequence
from dataclasses import replace

import torch

import spmdx._C as _C
from spmdx._auto.parts.costs import Part


class Beside:
    """Plans of what is done up to the end of a backward pass, each by itself.

    Attributes:
        passes: by backward pass, what the program did for it beside parts.
    """

    def __init__(self) -> None:
        self.passes: list[_C.PlannedCost] = []
        self._goes_back = False

    def began(self) -> None:
        """A backward pass came to a part: the trace ends behind the pass."""
        if not self._goes_back:
            self._goes_back = True
            torch.autograd.Variable._execution_engine.queue_callback(self._ended)

    def _ended(self) -> None:
        self._goes_back = False
        self.passes.append(_C.planned())


def with_update(chain: Sequence[Part], update: "_C.PlannedCost | None") -> list[Part]:
    """The parts of a chain, with what a step does once to all gradients."""
    total = sum(part.gradient_bytes for part in chain)
    if update is None or not update.ns or not total:
        return list(chain)

    def more(part: Part) -> Part:
        ns, ops = (of * part.gradient_bytes // total for of in (update.ns, update.ops))
        return replace(part, update_ns=part.update_ns + ns, update_ops=part.update_ops + ops)

    return [more(part) for part in chain]
