# SPDX-License-Identifier: Apache-2.0
"""OpSharding: a sharding as XLA writes it, and its text."""

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spmdx._annotate.mesh import Mesh
from spmdx._annotate.spec import Sharding
from spmdx._base.entries import axes_in


class ShardingType(enum.IntEnum):
    """What kind of sharding XLA makes of a partition spec."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


class OpSharding:
    """A sharding as a grid of device ids, one dim of it for each dim of the tensor.

    Args:
        tile_assignment: the grid, as nested lists; of a PARTIAL one the last dim holds replicas.
        group_assignment: groups of devices; kept, and not used.
        replication_groups: groups of replicas; kept, and not used.
        sharding_type: a :class:`ShardingType`.
        mesh: the mesh that it was written for, if it was.
        spec: the partition spec that it was written as, if it was.
    """

    def __init__(
        self,
        tile_assignment: Any,
        group_assignment: Any,
        replication_groups: Any,
        sharding_type: int,
        *,
        mesh: Mesh | None = None,
        spec: tuple | None = None,
    ):
        self.tile = np.array(tile_assignment, dtype=np.int64)
        self.group_assignment = group_assignment
        self.replication_groups = replication_groups
        self.kind = ShardingType(sharding_type)
        self.mesh, self.spec = mesh, spec

    def __str__(self) -> str:
        if self.kind in (ShardingType.REPLICATED, ShardingType.MANUAL):
            return f"{{{self.kind.name.lower()}}}"
        dims, ids = (",".join(map(str, values)) for values in (self.tile.shape, self.tile.flat))
        last = " last_tile_dim_replicate" if self.kind == ShardingType.PARTIAL else ""
        return f"{{devices=[{dims}]{ids}{last}}}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpSharding) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def mesh_and_spec(self, rank: int) -> tuple[Mesh, tuple]:
        """The mesh and the partition spec that say the same of a tensor of ``rank``."""
        if self.mesh is not None and self.spec is not None:
            is_whole = self.kind == ShardingType.REPLICATED
            return self.mesh, (None,) * rank if is_whole else self.spec
        tile = self.tile if self.tile.size else np.arange(1)
        mesh = Mesh(tile.flatten().tolist(), tile.shape)
        if self.kind == ShardingType.REPLICATED:
            return mesh, (None,) * rank
        return mesh, tuple(range(rank))


REPLICATED = OpSharding([], [], [], ShardingType.REPLICATED)
MANUAL = OpSharding([], [], [], ShardingType.MANUAL)


def tile_of(mesh: np.ndarray, axes: Sequence[Sequence[int]]) -> tuple[np.ndarray, ShardingType]:
    """The grid of a sharding, and its kind.

    Args:
        mesh: the device ids, in the shape of the mesh.
        axes: for each dim of the tensor the axes that cut it, major first.

    Returns:
        The grid and REPLICATED, TILED or PARTIAL.
    """
    used = [axis for entry in axes for axis in entry]
    rest = [axis for axis in range(mesh.ndim) if axis not in used]
    sizes = [math.prod(mesh.shape[axis] for axis in entry) for entry in axes]
    replicas = math.prod(mesh.shape[axis] for axis in rest)
    ordered = mesh.transpose([*used, *rest])
    if math.prod(sizes) == 1:
        return mesh.flatten(), ShardingType.REPLICATED
    if replicas == 1:
        return ordered.reshape(sizes), ShardingType.TILED
    return ordered.reshape([*sizes, replicas]), ShardingType.PARTIAL


def op_sharding(mesh: Mesh, axes: Sequence[Sequence[int]], spec: tuple) -> OpSharding:
    """The sharding that cuts dims by these axes of a mesh, which ``spec`` says too."""
    tile, kind = tile_of(mesh.get_logical_mesh(), axes)
    return OpSharding(tile, [], [], kind, mesh=mesh, spec=spec)


def from_sharding(sharding: Sharding) -> OpSharding:
    """How a tensor lies on the devices, as XLA writes it."""
    mesh, names = sharding.mesh, sharding.mesh.axis_names
    axes = []
    for entry in sharding.spec:
        axes.append([names.index(name) for name in axes_in(entry) if name in names])
    return op_sharding(mesh, axes, tuple(sharding.spec))
