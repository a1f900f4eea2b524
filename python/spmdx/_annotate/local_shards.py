# SPDX-License-Identifier: Apache-2.0
"""The pieces of a tensor that the devices of this process hold, and whether they fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._annotate.spec import Sharding, to_handle
from spmdx._base.entries import axes_in
from spmdx._world.all_or_none import told
from spmdx.errors import ShardingError


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


def pieces_of(
    shards: Sequence[Any], held_by: Mesh | Sharding, dtype: torch.dtype | None
) -> list[torch.Tensor]:
    """The tensors of ``shards``: one for each device of this process, alike."""
    if not isinstance(shards, Iterable):
        raise ShardingError(
            f"the shards are a {type(shards).__name__}. Expected a list of tensors, one for each "
            "device. Write [part, …], in the order of the mesh's positions."
        )
    pieces = [s.data if isinstance(s, LocalShard) else s for s in shards]
    count = len(held_by.addressable_positions)
    if len(pieces) != count:
        all_of_it = held_by.size() if isinstance(held_by, Mesh) else len(held_by.positions)
        mesh = held_by if isinstance(held_by, Mesh) or held_by.stage else held_by.mesh
        whose = "its" if count == all_of_it else "this process's"
        raise ShardingError(
            f"{len(pieces)} shards for {mesh!r}. Expected one for each of {whose} {count} "
            "devices. Give replicas too, in the order of the mesh's positions."
        )
    device = _C.shard_device()
    for i, piece in enumerate(pieces):
        if not isinstance(piece, torch.Tensor) or str(piece.device) not in ("cpu", device):
            where = getattr(piece, "device", type(piece).__name__)
            there = "CPU tensors" if device == "cpu" else f"tensors on the CPU or {device}"
            raise ShardingError(f"shard {i} is on {where}. Expected {there}. Call .cpu() on it.")
        if not _is_dense(piece):
            raise ShardingError(
                f"shard {i} is a {type(piece).__name__} of layout {piece.layout} whose elements do "
                "not all lie in memory. Expected a dense tensor. Call .to_dense() on a sparse one."
            )
        wanted = dtype or pieces[0].dtype
        if piece.dtype != wanted or piece.dim() != pieces[0].dim():
            raise ShardingError(
                f"shard {i} is {piece.dtype} of rank {piece.dim()}. Expected {wanted} of rank "
                f"{pieces[0].dim()}, as the others. Convert it with .to or .view."
            )
    return pieces


def _is_dense(piece: torch.Tensor) -> bool:
    has_code = type(piece).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    if piece.layout != torch.strided or has_code:
        return False
    if piece.numel() == 0 or piece._is_zerotensor():
        return True
    steps = zip(piece.shape, piece.stride(), strict=True)
    last = piece.storage_offset() + sum((extent - 1) * stride for extent, stride in steps)
    return piece.untyped_storage().nbytes() >= (last + 1) * piece.itemsize


def check_shapes(
    shapes: Mapping[int, Sequence[int]], sharding: Sharding, shape: Sequence[int]
) -> None:
    """Raises ShardingError unless these are, by position, parts of a tensor of ``shape``."""
    boxes = dict(zip(sharding.positions, sharding.boxes(shape), strict=True))
    for position, found in shapes.items():
        wanted = tuple(s.stop - s.start for s in boxes[position])
        if tuple(found) != wanted:
            raise ShardingError(
                f"shard {position} has shape {tuple(found)}. Expected {wanted}, its part of "
                f"{tuple(shape)} under {tuple(sharding.spec)}. Cut the tensor as torch.chunk does."
            )


def shapes_of(pieces: list[torch.Tensor], held_by: Mesh | Sharding) -> dict[int, list[int]]:
    """The shape of the piece of each device of this process, by its position."""
    positions = held_by.addressable_positions
    return {position: list(p.shape) for position, p in zip(positions, pieces, strict=True)}


def all_pieces(
    shards: Sequence[Any], given: Mesh | None
) -> tuple[list[torch.Tensor], torch.dtype, list[list[int]]]:
    """The tensors of ``shards``, their dtype, and the shapes of those of all processes."""
    pieces: list[torch.Tensor] = []

    def described() -> list:
        mesh = require_mesh(given)
        pieces.extend(pieces_of(shards, mesh, None))
        dtypes = [str(piece.dtype).removeprefix("torch.") for piece in pieces[:1]]
        return [dtypes, list(shapes_of(pieces, mesh).items())]

    dtypes: list[str] = []
    by_position: dict[int, list[int]] = {}
    for named, theirs in told("from_local_shards", described):
        dtypes += named
        by_position.update(theirs)
    shapes = [by_position[position] for position in range(require_mesh(given).size())]
    if len(set(dtypes)) != 1 or len({len(shape) for shape in shapes}) != 1:
        raise ShardingError(
            f"shards are {', '.join(sorted(set(dtypes)))} of ranks "
            f"{sorted({len(shape) for shape in shapes})} in different processes. Expected one "
            "dtype and one rank. Convert them with .to or .view."
        )
    return pieces, getattr(torch, dtypes[0]), shapes


def global_shape(shapes: list[list[int]], mesh: Mesh, spec: Sequence[Any]) -> tuple[int, ...]:
    """Dims that are cut are as long as the pieces along their axes, the other coordinates 0."""
    sample = torch.empty((mesh.size(),) * len(shapes[0]), device="meta")
    entries = Sharding(to_handle(spec, mesh, sample, "the tensor")).spec
    positions = np.arange(mesh.size()).reshape(mesh.mesh_shape)
    shape = []
    for dim, entry in enumerate(entries):
        axes = axes_in(entry)
        line = tuple(slice(None) if name in axes else 0 for name in mesh.axis_names)
        shape.append(sum(shapes[p][dim] for p in np.ravel(positions[line])))
    return tuple(shape)
