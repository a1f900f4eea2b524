# SPDX-License-Identifier: Apache-2.0
"""To and from torch.distributed's DeviceMesh and DTensor, whose processes have one device each."""

import functools
from typing import TYPE_CHECKING, Any

import torch

from spmdx import _C, _place
from spmdx.errors import ShardingError, naming
from spmdx.local_shards import check_shapes, pieces_of, shapes_of
from spmdx.mesh import Mesh
from spmdx.runtime import addressable_runtime_device_count, process_count
from spmdx.spec import Sharding, to_handle

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from spmdx.tensor import ShardedTensor


@functools.cache
def device_mesh(mesh: Mesh) -> "DeviceMesh":
    """What :meth:`spmdx.Mesh.to_device_mesh` returns; making one makes groups of processes."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    of_each = addressable_runtime_device_count()
    if of_each != 1 or process_count() != mesh.size() or not dist.is_initialized():
        raise ShardingError(
            f"{mesh!r} has {mesh.size()} devices, this program {process_count()} processes of "
            f"{of_each}. Expected processes of one device, as DeviceMesh knows no others, and "
            "torch.distributed.init_process_group called in each. Start as many with torchrun, "
            "without SPMDX_NUM_DEVICES."
        )
    grid = torch.from_numpy(mesh.get_logical_mesh())
    return DeviceMesh(_place.kind(), grid, mesh_dim_names=mesh.axis_names)


def from_dtensor(dtensor: Any) -> "ShardedTensor":
    """What :meth:`spmdx.ShardedTensor.from_dtensor` returns."""
    from spmdx.sharding import mark_sharding, spec_of_placements

    with naming("from_dtensor"):
        if not hasattr(dtensor, "placements"):
            raise ShardingError(
                f"a {type(dtensor).__name__} was given. Expected a "
                "torch.distributed.tensor.DTensor. Call spmdx.mark_sharding on other tensors."
            )
        mesh = Mesh.from_device_mesh(dtensor.device_mesh)
        spec = spec_of_placements(dtensor.placements, mesh, dtensor.dim())
        sharding = Sharding(to_handle(spec, mesh, dtensor, "the DTensor"))
        pieces = pieces_of(
            [dtensor.detach().to_local()] if mesh.addressable_positions else [], mesh, dtensor.dtype
        )
        check_shapes(shapes_of(pieces, mesh), sharding, dtensor.shape)
        result = _C.from_local(pieces, sharding._handle, list(dtensor.shape), dtensor.dtype, True)
    if isinstance(dtensor, torch.nn.Parameter):
        result = torch.nn.Parameter(result, dtensor.requires_grad)
    else:
        result.requires_grad_(dtensor.requires_grad)
    return mark_sharding(result, mesh, spec)


def to_dtensor(tensor: "ShardedTensor") -> Any:
    """What :meth:`spmdx.ShardedTensor.to_dtensor` returns."""
    from torch.distributed.tensor import DTensor

    with naming("to_dtensor"):
        mesh = device_mesh(tensor.mesh)
        (shard,) = _C.local_data(tensor, on_host=False)[0]
        result = DTensor.from_local(
            shard,
            mesh,
            tensor.placements,
            run_check=False,
            shape=tensor.shape,
            stride=torch.empty(tensor.shape, device="meta").stride(),
        )
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(result, tensor.requires_grad)
    return result.requires_grad_(tensor.requires_grad)
