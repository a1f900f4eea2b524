# SPDX-License-Identifier: Apache-2.0
"""Into a manual region and out of it, under torch_xla's names."""

from collections.abc import Sequence
from typing import Any

import torch

from spmdx import runtime
from spmdx._base.entries import axes_in
from spmdx._xla import home, manual, state
from spmdx._xla.device import uploads
from spmdx._xla.manual import ManualTensor
from spmdx._xla.mesh import Mesh, get_global_mesh
from spmdx._xla.op_sharding import OpSharding, ShardingType
from spmdx._xla.sharded_tensor import XLAShardedTensor


def _axes(found: OpSharding, rank: int) -> tuple[Any, list[list[int]]]:
    """The mesh of a sharding, and the axes that cut each dim."""
    mesh, spec = found.mesh_and_spec(rank)
    index: dict[Any, int] = {name: i for i, name in enumerate(mesh.axis_names)}
    index.update((i, i) for i in range(len(mesh.mesh_shape)))
    return mesh, [[index[axis] for axis in axes_in(entry)] for entry in spec]


def full_to_shard_shape(tensor: torch.Tensor) -> ManualTensor:
    """The part that one device holds of a tensor that is annotated."""
    found = state.require_xla(tensor)
    known = state.sharding_of(found)
    if known is None or known.kind == ShardingType.MANUAL or known.mesh is None:
        raise RuntimeError("the tensor is not annotated. Expected one. Call mark_sharding first.")
    mesh, axes = _axes(known, found.dim())
    return manual.enter(found, mesh, axes)


def shard_to_full_shape(
    tensor: torch.Tensor, wanted: OpSharding, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """The tensor of ``shape`` that all devices hold parts of, annotated as ``wanted``."""
    found = state.unwrapped(tensor)
    if not isinstance(found, ManualTensor):
        raise RuntimeError("the tensor is not manual. Call enable_manual_sharding first.")
    mesh = found.mesh
    axes: list[list[int]] = [[] for _ in shape]
    if wanted.kind not in (ShardingType.REPLICATED,):
        mesh, axes = _axes(wanted, len(shape))
    result = manual.leave(found, mesh, axes, shape).to(dtype)
    return home.annotate(result, wanted)


def _mark_manual_sharding(t: Any) -> XLAShardedTensor:
    """Call what every device has whole its own: from here on it may differ.

    Args:
        t: the result of an op, with no annotation.

    Returns:
        A tensor that stands for the manual one.

    Raises:
        RuntimeError: it is data, no result.
    """
    found = state.require_xla(t)
    if isinstance(found, ManualTensor):
        return XLAShardedTensor(found)
    if uploads.is_fresh(found) or not state.is_pending():
        raise RuntimeError("Marking any data tensors as manual is not supported")
    count = runtime.global_runtime_device_count()
    mesh = manual.Mesh(range(count), (count,))
    return XLAShardedTensor(manual.enter(found, mesh, [[] for _ in found.shape]))


def enable_manual_sharding(
    t: Any, partition_spec: Sequence[Any], *, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """The part of ``t`` that one device holds; ops on it are those of each device.

    Args:
        t: a tensor on the device.
        partition_spec: how it is cut.
        mesh: all devices; None means the global mesh.

    Returns:
        A tensor of the shape of one part.

    Raises:
        RuntimeError: its dims cannot be cut evenly.
    """
    used = _mesh_or_global(mesh)
    found = state.require_xla(t)
    return XLAShardedTensor(manual.enter(found, used.own, used.axes_of(partition_spec)))


def disable_manual_sharding(
    t: Any,
    partition_spec: Sequence[Any],
    full_shape: Sequence[int],
    *,
    mesh: Mesh | None = None,
) -> XLAShardedTensor:
    """The tensor of which each device holds a part.

    Args:
        t: what :func:`enable_manual_sharding` gave, or the result of an op with it.
        partition_spec: which axes its parts lie along.
        full_shape: the shape that all parts have together.
        mesh: all devices; None means the global mesh.

    Returns:
        A tensor of that shape.

    Raises:
        RuntimeError: it is not manual, or its parts do not make that shape.
    """
    used = _mesh_or_global(mesh)
    wanted = used.get_op_sharding(tuple(partition_spec))
    full = shard_to_full_shape(t, wanted, full_shape, t.dtype)
    return XLAShardedTensor(full, used.mesh_shape, tuple(partition_spec))


def _mesh_or_global(mesh: Mesh | None) -> Mesh:
    used = get_global_mesh() if mesh is None else mesh
    if used is None:
        raise ValueError("A mesh is required. Pass mesh=…, or call set_global_mesh first.")
    return used
