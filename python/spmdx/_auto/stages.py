# SPDX-License-Identifier: Apache-2.0
"""An estimate as what is said of a program: its strategy."""

import torch

from spmdx._auto.space import Estimated
from spmdx._auto.strategy import Strategy
from spmdx._pipelines.held import tensors_of
from spmdx._pipelines.pipeline import stages_by_cut
from spmdx.errors import ShardingError

Stages = list[str] | dict[str, int]


class Strategies:
    """Strategies for one model, by its names of parameters and modules."""

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self._names = list(tensors_of(model))
        self._plans: dict[tuple, dict[str, tuple]] = {}
        self._stages: dict[tuple, Stages] = {}

    def of(self, estimated: Estimated) -> Strategy:
        """What is said so that it takes as much."""
        parallelism, cuts = estimated.parallelism, estimated.cuts
        if cuts.dims not in self._plans:
            self._plans[cuts.dims] = cuts.plan(self._names)
        is_cut, is_piped = parallelism.model > 1, parallelism.pipe > 1
        return Strategy(
            data=parallelism.data,
            model=parallelism.model,
            pipe=parallelism.pipe,
            microbatches=parallelism.microbatches,
            zero=parallelism.zero,
            schedule=parallelism.schedule,
            chunks=parallelism.chunks,
            plan=self._plans[cuts.dims] if is_cut else {},
            sequence=is_cut and cuts.cuts_sequence,
            stages=self._stages_of(estimated) if is_piped else (),
        )

    def _stages_of(self, estimated: Estimated) -> Stages:
        first = tuple(estimated.estimate.first)
        key = estimated.order, first
        if key not in self._stages:
            self._stages[key] = self._found(estimated.order, first)
        return self._stages[key]

    def _found(self, order: tuple[str, ...], first: tuple[int, ...]) -> Stages:
        """The modules with which stages begin; where these are not in order, stages by name."""
        of_unit = {unit: sum(f <= at for f in first) - 1 for at, unit in enumerate(order)}
        stages = {name: of_unit[_owner(name, of_unit, order[0])] for name in self._names}
        cuts = [order[f] for f in first[1:]]
        try:
            same = stages_by_cut(self._model, cuts, len(first)) == stages
        except ShardingError:  # they are not in the order of the modules
            same = False
        return cuts if same else stages


def _owner(name: str, units: dict[str, int], otherwise: str) -> str:
    """The unit that holds the parameter or buffer of this name."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        unit = ".".join(parts[:count])
        if unit in units:
            return unit
    return otherwise
