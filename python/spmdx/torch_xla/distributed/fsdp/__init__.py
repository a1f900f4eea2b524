# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.fsdp: which parts of a module are wrapped."""

from spmdx._xla.device.absent import absent
from spmdx.torch_xla.distributed.fsdp.utils import checkpoint_module

__all__ = ["checkpoint_module"]

__getattr__ = absent(
    "torch_xla.distributed.fsdp",
    {"XlaFullyShardedDataParallel": "Use SpmdFullyShardedDataParallel, or spmdx.fully_shard."},
)
