# SPDX-License-Identifier: Apache-2.0
"""What a strategy is searched for: a model, a batch and a loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from spmdx._auto.trial import Program
from torch import nn


@dataclass(frozen=True)
class Net:
    """A small model with what trains it.

    Attributes:
        make: the model; within `spmdx.plan_only` its nodes count, its size does not.
        batch: so many samples of what a step takes, without values.
        loss: of the model and a microbatch.
        samples: of a batch.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[int], Any]
    loss: Callable[[nn.Module, Any], torch.Tensor]
    samples: int = 16

    def program(self) -> Program:
        """On the device, with AdamW, and a step that takes microbatches."""
        with torch.device("spmdx"):
            model = self.make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(batches: list[Any]) -> None:
            for batch in batches:
                (self.loss(model, batch) / len(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()

        return Program(step, model, optimizer)


def floats(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def whole_numbers(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64, device="meta")
