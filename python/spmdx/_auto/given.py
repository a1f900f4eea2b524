# SPDX-License-Identifier: Apache-2.0
"""Cuts that somebody gave, where a search has those that it chose."""

from collections.abc import Sequence

import torch

from spmdx._auto.strategy import Strategy
from spmdx._modules.marking import specs_by_pattern
from spmdx._pipelines.held import tensors_of


class Given:
    """What "model" cuts by a strategy; read as :class:`spmdx._auto.cuts.Cuts` is.

    Attributes:
        dims: what tells these cuts from others.
        cuts_sequence: whether "model" cuts dim 1 of a batch.
    """

    def __init__(self, strategy: Strategy, model: torch.nn.Module):
        self._plan = dict(strategy.plan or {})
        self._specs = specs_by_pattern(self._plan, tensors_of(model)) if self._plan else {}
        self.dims = tuple(sorted(self._specs.items(), key=repr))
        self.cuts_sequence = strategy.sequence

    def specs(self) -> dict[str, tuple]:
        """By name of a parameter that is cut, its partition spec."""
        return dict(self._specs)

    def plan(self, among: Sequence[str]) -> dict[str, tuple]:
        """By pattern, as it was given."""
        return self._plan
