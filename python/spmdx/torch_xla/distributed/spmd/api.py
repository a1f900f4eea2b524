# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.spmd.api: what torch.distributed.tensor calls for meshes of "xla"."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate

from spmdx import runtime as own_runtime
from spmdx._base.entries import entry_of
from spmdx._base.own_devices import NAMES
from spmdx._xla import state
from spmdx._xla.device import counters
from spmdx._xla.mesh import Mesh
from spmdx._xla.op_sharding import ShardingType
from spmdx._xla.sharded_tensor import XLAShardedTensor
from spmdx.torch_xla import runtime
from spmdx.torch_xla.distributed.spmd.xla_sharding import cut_longest_dim, mark_sharding


def auto_policy(mod_name: str, mod: torch.nn.Module, mesh: Any) -> None:
    """As ``partition_fn``: cuts each parameter along its longest dim, over all devices.

    The planner chooses how all else lies, as it does wherever nobody has marked.

    Args:
        mod_name: the name of a module.
        mod: the module, on the device.
        mesh: a ``DeviceMesh`` of type "xla" with all devices.
    """
    used = convert_to_xla_mesh(mesh)
    axes = tuple(range(len(used.mesh_shape)))
    for parameter in mod.parameters(recurse=False):
        cut_longest_dim(parameter, used, entry_of(axes))
    counters.choose_shardings()


def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """The mesh of the devices, shape and names of a ``DeviceMesh``.

    Args:
        dt_mesh: a mesh of all devices.

    Returns:
        A :class:`Mesh`.

    Raises:
        AssertionError: it has not all devices.
    """
    runtime.use_spmd()
    count = own_runtime.global_runtime_device_count()
    assert dt_mesh.size() == count, f"{dt_mesh} has not all of the {count} devices."
    grid = dt_mesh.mesh
    return Mesh(grid.flatten().tolist(), tuple(grid.shape), dt_mesh.mesh_dim_names)


def convert_to_xla_partition_spec(tensor: torch.Tensor, placements: Sequence[Any]) -> tuple:
    """The partition spec that says the same as placements.

    Args:
        tensor: of any rank.
        placements: ``Shard(dim)`` or ``Replicate()`` for each axis of the mesh.

    Returns:
        One entry a dim: None, an axis, or a tuple of axes.

    Raises:
        ValueError: another kind of placement.
    """
    dims: list[list[int]] = [[] for _ in range(tensor.dim())]
    for axis, placement in enumerate(placements):
        if placement.is_shard():
            dims[placement.dim].append(axis)
        elif not placement.is_replicate():
            raise ValueError(f"Unsupported placement type: {type(placement).__name__}")
    return tuple(map(entry_of, dims))


def xla_distribute_tensor(
    tensor: torch.Tensor, device_mesh: Any, placements: Sequence[Any] | None = None
) -> XLAShardedTensor:
    """Mark a tensor as placements say, in place if it is on the device.

    Args:
        tensor: on any device.
        device_mesh: a ``DeviceMesh`` of type "xla" with all devices.
        placements: one for each axis; None replicates.

    Returns:
        A tensor that stands for it.

    Raises:
        ValueError: a DTensor of another kind, or a placement that is neither shard nor replica.
        AssertionError: it is cut already, or the mesh has not all devices.
    """
    assert device_mesh.device_type == "xla", f"{device_mesh} is not of type 'xla'."
    mesh = convert_to_xla_mesh(device_mesh)
    if isinstance(tensor, DTensor) and not isinstance(tensor, XLAShardedTensor):
        raise ValueError("a DTensor was given. Expected a plain tensor: call full_tensor() on it.")
    if state.unwrapped(tensor).device.type not in NAMES:
        tensor = tensor.detach().to("spmdx").requires_grad_(tensor.requires_grad)
    known = state.sharding_of(tensor)
    assert known is None or known.kind == ShardingType.REPLICATED, (
        f"the tensor is {known} already. Expected one that is not cut. Call clear_sharding first."
    )
    wanted = [Replicate()] * len(mesh.mesh_shape) if placements is None else placements
    assert len(wanted) == len(mesh.mesh_shape), "Expected one placement for each axis of the mesh."
    return mark_sharding(tensor, mesh, convert_to_xla_partition_spec(tensor, wanted))


def xla_distribute_module(
    module: torch.nn.Module,
    device_mesh: Any = None,
    partition_fn: Callable[..., Any] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> torch.nn.Module:
    """Let ``partition_fn`` mark the parameters of a module; hooks see inputs and outputs.

    Args:
        module: of any class.
        device_mesh: a ``DeviceMesh`` of type "xla" with all devices.
        partition_fn: called with the name of each submodule, the submodule and the mesh.
        input_fn: called with (module, inputs, mesh), or (inputs, mesh), before ``forward``.
        output_fn: called with (module, outputs, mesh), or (outputs, mesh), after it.

    Returns:
        ``module`` itself, on the device.

    Raises:
        ValueError: a hook that takes other arguments.
    """
    runtime.use_spmd()
    module.to("spmdx")
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, device_mesh)
    if input_fn is not None:
        before = _hook(input_fn, device_mesh, "input_fn")
        module.register_forward_pre_hook(before)
    if output_fn is not None:
        after = _hook(output_fn, device_mesh, "output_fn")
        module.register_forward_hook(lambda part, inputs, outputs: after(part, outputs))
    return module


def _hook(function: Callable[..., Any], mesh: Any, name: str) -> Callable[[Any, Any], Any]:
    count = len(inspect.signature(function).parameters)
    if count == 3:
        return lambda module, values: function(module, values, mesh)
    if count == 2:
        return lambda module, values: function(values, mesh)
    raise ValueError(f"{name} takes {count} arguments. Expected (module, values, mesh).")
