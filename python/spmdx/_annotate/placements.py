# SPDX-License-Identifier: Apache-2.0
"""Placements: DTensor's way to write partition specs."""

from collections.abc import Sequence
from typing import Any

from spmdx._annotate.device_mesh import axes_of
from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx.errors import ShardingError


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
