# SPDX-License-Identifier: Apache-2.0
"""An accelerator and a strategy for the Trainer of ``lightning.pytorch``.

They are known by the name "spmdx" once this module is imported.
"""

from lightning.fabric.utilities.init import _materialize_distributed_module
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.strategies import ParallelStrategy, StrategyRegistry
from lightning.pytorch.utilities.rank_zero import rank_zero_only

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

    Args:
        mesh: the devices; None: all of them along one axis, ``data`` (``fsdp`` if that is the
            plan).
        plan: how parameters are cut: None (not at all), "fsdp" (each along the axis ``fsdp``),
            "auto" (the tensor parallel plan that a model of transformers brings, along ``model``),
            or a dict from patterns of names to partition specs.
        batch_axes: the axes that cut dim 0 of every tensor of a batch; None: ``data`` and
            ``fsdp``, where the mesh has them.
        minibatch: each process loads its part of a batch by a distributed sampler, so that a
            global batch is as many times ``batch_size`` rows; else all load the whole batch.
        save_distributed_checkpoint: write a folder, to which each process gives what it holds; else
            one file that any strategy reads.
        accelerator: of spmdx.
        checkpoint_io: Lightning's, for files.
        precision_plugin: Lightning's.
        options: those of other strategies are refused with what to write instead.

    Raises:
        ShardingError: an option, an axis or an accelerator that does not fit.

    Example:
        >>> import spmdx
        >>> mesh = spmdx.Mesh(range(8), (2, 4), ("data", "fsdp"))
        >>> SpmdxStrategy(mesh, plan="fsdp").batch_sharding.partition_spec
        PartitionSpec(('data', 'fsdp'))

    Source: ``lightning.pytorch.strategies.ModelParallelStrategy``, whose names it shares.
    """

    strategy_name = "spmdx"
    _rank_zero = staticmethod(rank_zero_only)
    _materialize = staticmethod(_materialize_distributed_module)


register_accelerator(AcceleratorRegistry, SpmdxAccelerator)
register_strategies(StrategyRegistry, SpmdxStrategy)
