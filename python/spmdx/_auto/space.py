# SPDX-License-Identifier: Apache-2.0
"""What a search looks at."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

import spmdx._C as _C
from spmdx._auto.cuts import Cuts, Given
from spmdx._auto.parts.laid import unknown
from spmdx._auto.strategy import Strategy, tensors_in

MOST_MODEL = 64  # devices that "model" has, where the topology has one level


@dataclass
class Space:
    """What is searched.

    Attributes:
        devices: how many.
        batch: what a step takes, of all devices.
        memory_limit: bytes of a device; 0: none.
        zero: stages that may be tried.
        schedules: of pipelines.
    """

    devices: int
    batch: Any
    memory_limit: int
    zero: list[int]
    schedules: list[str]

    @property
    def samples(self) -> int:
        """Of the batch."""
        return tensors_in(self.batch)[0].shape[0]

    def has_room(self, peak_bytes: int) -> bool:
        """Whether a device holds so many bytes."""
        return not self.memory_limit or peak_bytes <= self.memory_limit

    def microbatch(self, samples: int) -> Any:
        """A batch of so many samples, on the device, of which nothing but types is known."""

        def like(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.dim():
                return value
            shape = (samples, *value.shape[1:])
            return unknown(torch.empty(shape, dtype=value.dtype, device="spmdx"))

        return tree_map(like, self.batch)


class Estimated(NamedTuple):
    """A parallelism and its estimate.

    Attributes:
        parallelism, estimate: as ``csrc/passes/parallelism`` has them.
        cuts: what "model" cuts.
        order: names of the units that stages are made of.
    """

    parallelism: "_C.Parallelism"
    estimate: "_C.Estimate"
    cuts: Cuts | Given
    order: tuple[str, ...]

    @property
    def family(self) -> str:
        """As a strategy has it."""
        p = self.parallelism
        return Strategy(p.data, p.model, p.pipe).family


def most_model() -> int:
    """How many devices "model" has at most: twice those with the fastest links."""
    levels = _C.topology()["levels"]
    return 2 * levels[0]["devices"] if len(levels) > 1 else MOST_MODEL
