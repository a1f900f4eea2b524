# SPDX-License-Identifier: Apache-2.0
"""What accelerate prepares, made for the device: loaders and optimizers."""

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.data_loader import DataLoaderShard
from accelerate.optimizer import AcceleratedOptimizer

from spmdx._data.batches import map_tensors
from spmdx._data.input_sharding import Placement
from spmdx._integrations.hugging_face.host import on_host
from spmdx._integrations.hugging_face.layout import Layout
from spmdx._integrations.plans import lie_as_parameters
from spmdx._program.step import mark_step


class Batches:
    """Lays batches on the devices of a layout.

    Args:
        layout: where the rows of a batch are cut.
    """

    def __init__(self, layout: Layout):
        self._cut = Placement(None, layout.batch_spec)
        self._whole = Placement(layout.mesh, None)

    def place(self, batch: Any) -> Any:
        """The same batch on device "spmdx": rows are cut, numbers lie on every device."""
        return map_tensors(self._place, batch)

    def _place(self, path: tuple[Any, ...], tensor: torch.Tensor) -> torch.Tensor:
        placement = self._cut if tensor.dim() else self._whole
        return placement.place(path, tensor, None)


class Loader(DataLoaderShard):
    """A loader of accelerate whose batches are cut; a step ends when the next one is asked for."""

    _batches: Batches | None

    @staticmethod
    def of(prepared: DataLoaderShard, batches: Batches | None) -> "Loader":
        """The same loader; without ``batches`` these stay where they are."""
        made = object.__new__(Loader)
        made.__dict__.update(prepared.__dict__, device=None, _batches=batches)
        return made

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch if self._batches is None else self._batches.place(batch)
            mark_step()


class Optimizer(AcceleratedOptimizer):
    """An optimizer of accelerate whose state is saved whole, and lies as the parameters do."""

    @staticmethod
    def of(prepared: AcceleratedOptimizer) -> "Optimizer":
        """The same optimizer."""
        prepared.__class__ = Optimizer
        return prepared

    def state_dict(self) -> dict[str, Any]:
        """The state on the host. All processes have to call it."""
        return on_host(super().state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; what is held of a parameter lies as the parameter does."""
        super().load_state_dict(state_dict)
        lie_as_parameters(self.optimizer)
