# SPDX-License-Identifier: Apache-2.0
"""An accelerator and a strategy for the Trainer of ``pytorch_lightning``.

They are known by the name "spmdx" once this module is imported.
"""

from lightning_fabric.utilities.init import _materialize_distributed_module
from pytorch_lightning.accelerators import Accelerator, AcceleratorRegistry
from pytorch_lightning.strategies import ParallelStrategy, StrategyRegistry
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from spmdx._integrations.lightning.accelerator import AcceleratorOfDevices, register_accelerator
from spmdx._integrations.lightning.strategy import StrategyOfDevices, register_strategies

__all__ = ["SpmdxAccelerator", "SpmdxStrategy"]


class SpmdxAccelerator(AcceleratorOfDevices, Accelerator):
    """The devices of spmdx: ``Trainer(accelerator="spmdx", devices=8)``.

    Example:
        >>> SpmdxAccelerator.is_available(), SpmdxAccelerator.auto_device_count()
        (True, 8)
    """


class SpmdxStrategy(StrategyOfDevices, ParallelStrategy):
    """One process drives all its devices; batches are global, parameters lie as a plan says.

    The arguments are those of :class:`spmdx.integrations.lightning.SpmdxStrategy`.

    Example:
        >>> import spmdx
        >>> mesh = spmdx.Mesh(range(8), (2, 4), ("data", "fsdp"))
        >>> SpmdxStrategy(mesh, plan="fsdp").batch_sharding.partition_spec
        PartitionSpec(('data', 'fsdp'))
    """

    strategy_name = "spmdx"
    _rank_zero = staticmethod(rank_zero_only)
    _materialize = staticmethod(_materialize_distributed_module)


register_accelerator(AcceleratorRegistry, SpmdxAccelerator)
register_strategies(StrategyRegistry, SpmdxStrategy)
