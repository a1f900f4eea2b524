# SPDX-License-Identifier: Apache-2.0
"""The pieces of a tensor that the devices of this process hold, and whether they fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from spmdx import _C
from spmdx.errors import ShardingError
from spmdx.mesh import Mesh
from spmdx.spec import Sharding, to_handle


@dataclass(frozen=True)
class LocalShard:
    """What one device holds of a tensor.

    Attributes:
        data: the elements, on the CPU. Replicas share memory: do not write to it.
        indices: one slice a dim, into the global tensor.
        replica_id: 0 for the first device that holds these elements, then 1, 2, ….
        device: the id of the device.
    """

    data: torch.Tensor
    indices: tuple[slice, ...]
    replica_id: int
    device: int


def pieces_of(shards: Sequence[Any], mesh: Mesh, dtype: torch.dtype | None) -> list[torch.Tensor]:
    """The tensors of ``shards``: one for each device of this process, alike."""
    pieces = [s.data if isinstance(s, LocalShard) else s for s in shards]
    count = len(mesh.addressable_positions)
    if len(pieces) != count:
        whose = "its" if count == mesh.size() else "this process's"
        raise ShardingError(
            f"{len(pieces)} shards for {mesh!r}. Expected one for each of {whose} {count} "
            "devices. Give replicas too, in the order of the mesh's positions."
        )
    for i, piece in enumerate(pieces):
        if not isinstance(piece, torch.Tensor) or str(piece.device) not in ("cpu", _C.place()):
            where = getattr(piece, "device", type(piece).__name__)
            there = "CPU tensors" if _C.place() == "cpu" else f"tensors on the CPU or {_C.place()}"
            raise ShardingError(f"shard {i} is on {where}. Expected {there}. Call .cpu() on it.")
        wanted = dtype or pieces[0].dtype
        if piece.dtype != wanted or piece.dim() != pieces[0].dim():
            raise ShardingError(
                f"shard {i} is {piece.dtype} of rank {piece.dim()}. Expected {wanted} of rank "
                f"{pieces[0].dim()}, as the others. Convert it with .to or .view."
            )
    return pieces


def check_shapes(pieces: list[torch.Tensor], sharding: Sharding, shape: Sequence[int]) -> None:
    """Raises ShardingError unless each piece is the device's part of a tensor of ``shape``."""
    boxes = sharding.boxes(shape)
    for piece, position in zip(pieces, sharding.mesh.addressable_positions, strict=True):
        wanted = tuple(s.stop - s.start for s in boxes[position])
        if tuple(piece.shape) != wanted:
            raise ShardingError(
                f"shard {position} has shape {tuple(piece.shape)}. Expected {wanted}, its part of "
                f"{tuple(shape)} under {tuple(sharding.spec)}. Cut the tensor as torch.chunk does."
            )


def all_shapes(pieces: list[torch.Tensor], mesh: Mesh) -> tuple[torch.dtype, list[list[int]]]:
    """The dtype, and the shape of every device's piece, of other processes too."""
    from spmdx import _world

    dtypes = [str(piece.dtype).removeprefix("torch.") for piece in pieces[:1]]
    mine = [list(piece.shape) for piece in pieces]
    shapes: list[list[int]] = [[]] * mesh.size()
    for positions, theirs, named in _world.exchange([mesh.addressable_positions, mine, dtypes]):
        dtypes += named
        for position, shape in zip(positions, theirs, strict=True):
            shapes[position] = shape
    if len(set(dtypes)) != 1 or len({len(shape) for shape in shapes}) != 1:
        raise ShardingError(
            f"shards are {', '.join(sorted(set(dtypes)))} of ranks "
            f"{sorted({len(shape) for shape in shapes})} in different processes. Expected one "
            "dtype and one rank. Convert them with .to or .view."
        )
    return getattr(torch, dtypes[0]), shapes


def global_shape(shapes: list[list[int]], mesh: Mesh, spec: Sequence[Any]) -> tuple[int, ...]:
    """Dims that are cut are as long as the pieces along their axes, the other coordinates 0."""
    sample = torch.empty((mesh.size(),) * len(shapes[0]), device="meta")
    entries = Sharding(to_handle(spec, mesh, sample, "the tensor")).spec
    positions = np.arange(mesh.size()).reshape(mesh.mesh_shape)
    shape = []
    for dim, entry in enumerate(entries):
        axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
        line = tuple(slice(None) if name in axes else 0 for name in mesh.axis_names)
        shape.append(sum(shapes[p][dim] for p in np.ravel(positions[line])))
    return tuple(shape)
