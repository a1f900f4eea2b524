# SPDX-License-Identifier: Apache-2.0
"""The DeviceMesh of torch.distributed with the devices of a mesh, one in each process."""

import functools
from typing import TYPE_CHECKING

import torch

from spmdx._world import hardware
from spmdx._world.devices import own_count
from spmdx._world.processes import process_count
from spmdx.errors import ShardingError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@functools.cache
def device_mesh(
    ids: tuple[int, ...], shape: tuple[int, ...], axis_names: tuple[str, ...]
) -> "DeviceMesh":
    """What :meth:`spmdx.Mesh.to_device_mesh` returns; making one makes groups of processes."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    of_each = own_count()
    if of_each != 1 or process_count() != len(ids) or not dist.is_initialized():
        raise ShardingError(
            f"the mesh has {len(ids)} devices, this program {process_count()} processes of "
            f"{of_each}. Expected processes of one device, as DeviceMesh knows no others, and "
            "torch.distributed.init_process_group called in each. Start as many with torchrun, "
            "without SPMDX_NUM_DEVICES."
        )
    grid = torch.tensor(ids).reshape(shape)
    return DeviceMesh(hardware.kind(), grid, mesh_dim_names=axis_names)
