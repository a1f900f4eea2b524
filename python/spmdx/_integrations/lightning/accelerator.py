# SPDX-License-Identifier: Apache-2.0
"""What an accelerator of Lightning answers."""

from typing import Any

import torch

from spmdx._integrations.lightning.options import device_count
from spmdx._world import devices as own
from spmdx.debug import counters
from spmdx.errors import ShardingError, naming


class _Devices(list):
    """Of which strategies that drive one device a process ask for theirs."""

    def __getitem__(self, index: Any) -> Any:
        raise ShardingError(
            "the accelerator is 'spmdx', where one process drives all its devices, and the "
            "strategy asks for the device of one process. Expected a strategy of spmdx. Write "
            'Trainer(accelerator="spmdx", strategy="spmdx").'
        )


class AcceleratorOfDevices:
    """All but the base class, which is Lightning's."""

    def setup_device(self, device: torch.device) -> None:
        if device.type != "spmdx":
            raise ShardingError(
                f"the accelerator is 'spmdx', and the strategy puts tensors on '{device}'. "
                'Expected a strategy of spmdx. Write Trainer(accelerator="spmdx", '
                'strategy="spmdx"), or pass an SpmdxStrategy.'
            )

    def setup(self, trainer: Any) -> None:
        if not getattr(trainer.strategy, "runs_on_spmdx", False):
            raise ShardingError(
                f"the accelerator is 'spmdx', and the strategy is {type(trainer.strategy).__name__}"
                '. Expected a strategy of spmdx. Write Trainer(strategy="spmdx").'
            )

    def teardown(self) -> None:
        """Nothing is to be undone."""

    @staticmethod
    def parse_devices(devices: Any) -> int:
        with naming("Trainer"):
            return device_count(devices)

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        if devices != own.own_count():
            own.choose_count(devices)
        # One: of several, Lightning would choose DDP and start processes where no strategy is said.
        return _Devices([torch.device("spmdx")])

    @staticmethod
    def auto_device_count() -> int:
        return own.own_count()

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return "spmdx"

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """The counters of spmdx.debug, since the program began."""
        return {f"spmdx.{name}": float(value) for name, value in counters().items()}


def register_accelerator(registry: Any, accelerator: type) -> None:
    """Make it known by name to the Trainer whose registry it is; once."""
    if "spmdx" not in registry:
        registry.register("spmdx", accelerator, description="devices of spmdx")
