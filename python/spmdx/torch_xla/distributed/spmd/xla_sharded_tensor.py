# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.spmd.xla_sharded_tensor: a tensor seen as its shards."""

from spmdx._xla.sharded_tensor import XLAShardedTensor
from spmdx._xla.shards import XLAShard

__all__ = ["XLAShard", "XLAShardedTensor"]
