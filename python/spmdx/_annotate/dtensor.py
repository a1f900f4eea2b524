# SPDX-License-Identifier: Apache-2.0
"""To and from DTensor, whose processes have one device each, and its placements."""

from collections.abc import Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotate
from spmdx._annotate.device_mesh import axes_of
from spmdx._annotate.local_shards import check_shapes, pieces_of, shapes_of
from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._annotate.spec import Sharding, to_handle
from spmdx.errors import ShardingError, naming


def from_dtensor(dtensor: Any) -> Any:
    """What :meth:`spmdx.ShardedTensor.from_dtensor` returns."""
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
    return annotate(_leaf_as(dtensor, result), sharding._handle)


def to_dtensor(tensor: torch.Tensor, sharding: Sharding) -> Any:
    """What :meth:`spmdx.ShardedTensor.to_dtensor` returns of a tensor that lies so."""
    from torch.distributed.tensor import DTensor

    device_mesh, placements = sharding.mesh.to_device_mesh(), sharding.placements
    (shard,) = _C.local_data(tensor, on_host=False)[0]
    result = DTensor.from_local(
        shard,
        device_mesh,
        placements,
        run_check=False,
        shape=tensor.shape,
        stride=torch.empty(tensor.shape, device="meta").stride(),
    )
    return _leaf_as(tensor, result)


def _leaf_as(source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """``result``, a parameter if ``source`` is one, which gets a gradient if ``source`` does."""
    if isinstance(source, torch.nn.Parameter):
        return torch.nn.Parameter(result, source.requires_grad)
    return result.requires_grad_(source.requires_grad)


def _require_placements(placements: Any, mesh: Mesh, count: int) -> None:
    are = isinstance(placements, tuple | list) and all(hasattr(p, "is_shard") for p in placements)
    if not are:
        raise ShardingError(
            f"the placements are {placements!r}. Expected Shard(dim) or Replicate() for every axis "
            f"of {mesh!r}. Write them so, or give a partition spec to spmdx.mark_sharding."
        )
    if len(placements) != count:
        raise ShardingError(
            f"{len(placements)} placements for {mesh!r}. Expected one for every axis of the "
            f"mesh. Write {count} of Shard(dim) and Replicate()."
        )


def placed_on(given: Any, placements: Any, rank: int) -> tuple[Mesh, tuple[Any, ...]]:
    """Mesh and partition spec of DTensor ``placements`` on a mesh, or on a slice of one."""
    mesh, names = require_mesh(given), axes_of(given)
    if given is None or isinstance(given, Mesh) or not set(names) < set(mesh.axis_names):
        return mesh, spec_of_placements(placements, mesh, rank)
    return mesh, spec_of_placements(placements, mesh, rank, names)


def spec_of_placements(
    placements: Sequence[Any], mesh: Mesh, rank: int, axes: Sequence[str] | None = None
) -> tuple:
    """The partition spec that says the same as DTensor ``placements`` for a tensor of ``rank``.

    They are for all axes of ``mesh``, or for ``axes`` of it.
    """
    axes = mesh.axis_names if axes is None else axes
    _require_placements(placements, mesh, len(axes))
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis, placement in zip(axes, placements, strict=True):
        if placement.is_replicate():
            continue
        dim: Any = getattr(placement, "dim", None)  # an int where it is a shard
        if not placement.is_shard() or not -rank <= dim < rank:
            mend = "Reduce the values first" if placement.is_partial() else "Write Replicate()"
            raise ShardingError(
                f"the placement {placement} of axis {axis!r} does not fit a tensor of rank "
                f"{rank}. Expected Replicate() or Shard(dim) with a dim of the tensor. {mend}."
            )
        dims[dim].append(axis)
    return tuple(tuple(axes) or None for axes in dims)
