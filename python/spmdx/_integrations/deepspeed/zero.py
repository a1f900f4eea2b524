# SPDX-License-Identifier: Apache-2.0
"""The stages of ZeRO as annotations: what is cut along an axis, and what stays whole."""

from collections.abc import Iterable

import torch

from spmdx._annotate.mesh import Mesh
from spmdx._annotate.sharding import get_annotation, mark_sharding
from spmdx._integrations.plans import state_like_parameters
from spmdx._modules.marking import cut_besides


class Zero:
    """Marks parameters, gradients and the state of optimizers.

    Args:
        stage: 0: all is whole. 1: the state of optimizers and master weights are cut. 2:
            gradients, too. 3: parameters, too.
        mesh: the devices.
        axis: the one that cuts.

    Source: ZeRO, arXiv:1910.02054.
    """

    def __init__(self, stage: int, mesh: Mesh, axis: str):
        self.stage, self.mesh, self.axis = stage, mesh, axis
        self._own: dict[int, tuple] = {}  # of parameters that the program has marked

    def spec(self, parameter: torch.Tensor, cut: bool) -> tuple:
        """As the program said; else cut on the largest dim that divides, or whole."""
        said = self._own.get(id(parameter))
        if said is not None:
            return said
        whole = (None,) * parameter.dim()
        n = self.mesh.shape()[self.axis]
        return cut_besides(whole, parameter.shape, self.axis, n) if cut else whole

    def mark_parameters(self, parameters: Iterable[torch.Tensor]) -> None:
        for parameter in parameters:
            said = get_annotation(parameter)
            if said is not None:
                self._own[id(parameter)] = tuple(said.spec)
            else:
                mark_sharding(parameter, self.mesh, self.spec(parameter, self.stage == 3))

    def mark_master(self, master: torch.Tensor, parameter: torch.Tensor) -> None:
        spec = self.spec(parameter, self.stage >= 1)
        mark_sharding(master, self.mesh, spec)
        self._own[id(master)] = spec

    def mark_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        for parameter in parameters if self.stage >= 2 else ():
            if parameter.grad is not None:
                mark_sharding(parameter.grad, self.mesh, self.spec(parameter, True))

    def mark_state(self, optimizer: torch.optim.Optimizer) -> None:
        """What has the parameter's shape; a number, as that of steps, is no one's to cut."""
        for parameter, value in state_like_parameters(optimizer):
            if value.dim() and get_annotation(value) is None:
                mark_sharding(value, self.mesh, self.spec(parameter, self.stage >= 1))
