# SPDX-License-Identifier: Apache-2.0
"""DeviceMesh of torch.distributed: the one with the devices of a mesh, and slices of one."""

import functools
from typing import TYPE_CHECKING, Any

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


def whole_of(part: Any) -> Any:
    """The DeviceMesh that ``part`` is a slice of, as ``mesh["tp"]`` is, or ``part`` itself.

    A slice holds other devices in each process, but a program is one for all: the axes that the
    slice leaves out are there, too, and nothing is cut along them.

    Raises:
        ShardingError: axes were merged into one that does not lead to all devices.
    """
    root = part._get_root_mesh() if hasattr(part, "_get_root_mesh") else part
    if root is part or root.mesh.numel() == part.mesh.numel():
        return part
    names, known = part.mesh_dim_names or (), root.mesh_dim_names or ()
    if not names or any(name not in known for name in names):
        raise ShardingError(
            f"the axes {names} of the DeviceMesh lead to {part.mesh.numel()} of {root.mesh.numel()}"
            f" devices, and are none of {known}. Expected axes of the whole mesh. Pass that, and "
            "name several axes in one entry of a spec: (('dp', 'cp'), ...)."
        )
    return root


def axes_of(mesh: Any) -> tuple[str, ...]:
    """The names of the axes of a mesh as it was given, a slice as it is."""
    return tuple(getattr(mesh, "mesh_dim_names", None) or getattr(mesh, "axis_names", None) or ())
