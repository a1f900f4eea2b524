# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.spmd: meshes and annotations."""

from spmdx.torch_xla.distributed.spmd import xla_sharded_tensor, xla_sharding
from spmdx.torch_xla.distributed.spmd.api import (
    auto_policy,
    xla_distribute_module,
    xla_distribute_tensor,
)
from spmdx.torch_xla.distributed.spmd.debugging import visualize_sharding, visualize_tensor_sharding
from spmdx.torch_xla.distributed.spmd.xla_sharded_tensor import XLAShard, XLAShardedTensor
from spmdx.torch_xla.distributed.spmd.xla_sharding import (
    HybridMesh,
    MarkShardingFunction,
    Mesh,
    PartitionSpec,
    ShardingSpec,
    ShardingType,
    XLAPatchedLinear,
    _mark_manual_sharding,
    annotate_custom_sharding,
    apply_backward_optimization_barrier,
    clear_sharding,
    disable_manual_sharding,
    enable_manual_sharding,
    get_1d_mesh,
    get_global_mesh,
    mark_sharding,
    mark_sharding_with_gradients,
    set_global_mesh,
    shard_as,
    wrap_if_sharded,
    xla_patched_nn_linear_forward,
)

__all__ = [
    "HybridMesh",
    "MarkShardingFunction",
    "Mesh",
    "PartitionSpec",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "XLAShard",
    "XLAShardedTensor",
    "_mark_manual_sharding",
    "annotate_custom_sharding",
    "apply_backward_optimization_barrier",
    "auto_policy",
    "clear_sharding",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "shard_as",
    "visualize_sharding",
    "visualize_tensor_sharding",
    "wrap_if_sharded",
    "xla_distribute_module",
    "xla_distribute_tensor",
    "xla_patched_nn_linear_forward",
    "xla_sharded_tensor",
    "xla_sharding",
]
