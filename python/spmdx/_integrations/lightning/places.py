# SPDX-License-Identifier: Apache-2.0
"""Where a strategy of Lightning runs: devices, processes, and what they tell each other."""

from typing import Any

import torch

from spmdx._base.own_devices import NAMES
from spmdx._integrations import frame_processes
from spmdx._integrations.lightning.options import on_device, require_nodes
from spmdx._world import devices, processes
from spmdx.errors import ShardingError, naming


class PlacesOfStrategy:
    """Ranks count processes, and each of them drives all its devices."""

    _rank_zero: Any  # Lightning's rank_zero_only

    @property
    def root_device(self) -> torch.device:
        return torch.device("spmdx")

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        return [self.root_device] * devices.own_count() if self._said_devices else None

    @parallel_devices.setter
    def parallel_devices(self, said: Any) -> None:
        self._said_devices = bool(said)

    @property
    def global_rank(self) -> int:
        return processes.process_index()

    @property
    def world_size(self) -> int:
        return processes.process_count()

    @property
    def local_rank(self) -> int:
        return self.global_rank % (self.world_size // self.num_nodes)

    @property
    def node_rank(self) -> int:
        return self.global_rank // (self.world_size // self.num_nodes)

    @property
    def num_nodes(self) -> int:
        return getattr(self, "_num_nodes", 1)

    @num_nodes.setter
    def num_nodes(self, num_nodes: int) -> None:
        with naming("Trainer"):
            require_nodes(num_nodes)
        self._num_nodes = num_nodes

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    def set_world_ranks(self) -> None:
        self._rank_zero.rank = self.global_rank

    @property
    def accelerator(self) -> Any:
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Any) -> None:
        if accelerator is not None and accelerator.name() != "spmdx":
            raise ShardingError(
                f"the strategy runs on device 'spmdx', and the accelerator is "
                f"{type(accelerator).__name__}. Expected that of spmdx. Write "
                'Trainer(accelerator="spmdx").'
            )
        self._accelerator = accelerator

    @property
    def precision_plugin(self) -> Any:
        return super().precision_plugin  # type: ignore[misc]

    @precision_plugin.setter
    def precision_plugin(self, plugin: Any) -> None:
        with naming("Trainer"):
            self._precision_plugin = on_device(plugin)

    def barrier(self, name: str | None = None) -> None:
        processes.exchange(None, f"barrier {name or ''} of Lightning")

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return frame_processes.broadcast(obj, src, "broadcast of Lightning")

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return frame_processes.decide(decision, all, "a decision of Lightning")

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        return self._global_value(tensor, "reduce")

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        return self._global_value(tensor, "all_gather")

    def _global_value(self, value: Any, function: str) -> Any:
        """Tensors on the device are those of all processes already."""
        on_device = isinstance(value, torch.Tensor) and value.device.type in NAMES
        if self.world_size > 1 and not on_device:
            raise ShardingError(
                f"{function} of {type(value).__name__} {value!r}, of which each process has its "
                "own. Expected a tensor on device 'spmdx', which is global. Move it there, or "
                "exchange it with torch.distributed."
            )
        return value
