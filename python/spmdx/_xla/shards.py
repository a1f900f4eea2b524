# SPDX-License-Identifier: Apache-2.0
"""The shards of a tensor as torch_xla gives them: of one shape, padded with zeros at the end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import torch

import spmdx._C as _C
from spmdx import runtime
from spmdx._annotate import sharding
from spmdx._xla import home, state
from spmdx._xla.op_sharding import OpSharding, ShardingType


@dataclass
class XLAShard:
    """What one device holds of a tensor, copied to the CPU.

    Attributes:
        data: the elements; shards at the end of a dim are padded with zeros.
        indices: one slice a dim into the global tensor, without the padding; Ellipsis for all.
        shard_device: the name of the device.
        replica_id: which of the replicas it is; of what every device holds, the device's id.
    """

    data: torch.Tensor
    indices: "EllipsisType | list[slice]"
    shard_device: str
    replica_id: int

    def _within(self) -> Any:
        if isinstance(self.indices, EllipsisType):
            return ...
        return tuple(slice(0, s.stop - s.start) for s in self.indices)

    @property
    def unpadded_data(self) -> torch.Tensor:
        """The elements without the padding."""
        return self.data[self._within()]

    @unpadded_data.setter
    def unpadded_data(self, data: torch.Tensor) -> None:
        self.data[self._within()] = data


def sharding_for(tensor: torch.Tensor) -> OpSharding:
    """The sharding of a tensor whose values are asked for."""
    found = state.sharding_of(tensor)
    if found is None:
        raise RuntimeError(
            "the tensor has no sharding yet. Expected one that was marked or computed. Call "
            "mark_sharding, or torch_xla.sync()."
        )
    return found


def padded_shape(shape: Sequence[int], found: OpSharding) -> list[int]:
    """The shape of every shard."""
    if found.kind == ShardingType.REPLICATED:
        return list(shape)
    return [math.ceil(size / n) for size, n in zip(shape, found.tile.shape, strict=False)]


def places_of(shape: Sequence[int], found: OpSharding) -> list[tuple[int, Any]]:
    """For each device of this process, by its id: the replica, and the indices."""
    if found.kind == ShardingType.REPLICATED:
        return [(device, ...) for device in _own_devices()]
    local, places = padded_shape(shape, found), []
    for device in _own_devices():
        at = [int(i[0]) for i in np.where(found.tile == device)]
        starts = [min(i * n, size) for i, n, size in zip(at, local, shape, strict=False)]
        stops = [min((i + 1) * n, size) for i, n, size in zip(at, local, shape, strict=False)]
        replica = at[-1] if found.kind == ShardingType.PARTIAL else 0
        places.append((replica, [slice(a, b, 1) for a, b in zip(starts, stops, strict=True)]))
    return places


def _own_devices() -> list[int]:
    count = runtime.addressable_runtime_device_count()
    first = runtime.process_index() * count
    return list(range(first, first + count))


def shards_of(tensor: torch.Tensor) -> list[XLAShard]:
    """What the devices of this process hold, in the order of their ids."""
    found = sharding_for(tensor)
    kind, shape = runtime.device_type(), padded_shape(tensor.shape, found)
    rows = []
    is_whole = found.kind == ShardingType.REPLICATED
    whole = tensor.detach().cpu() if is_whole or _is_nested(tensor) else None
    held = {} if whole is not None else _pieces(tensor)
    for device, (replica, indices) in zip(
        _own_devices(), places_of(tensor.shape, found), strict=True
    ):
        data = torch.zeros(shape, dtype=tensor.dtype)
        piece = held[device] if whole is None else whole if is_whole else whole[tuple(indices)]
        data[tuple(slice(0, size) for size in piece.shape)] = piece
        rows.append(XLAShard(data, indices, f"{kind}:{device}", replica))
    return rows


def _is_nested(tensor: torch.Tensor) -> bool:
    """Whether several axes cut a dim in parts of different sizes: here one axis after the other
    does, rounding up at each; in XLA all of them do at once, so that devices hold other elements.
    """
    handle = _C.annotation(tensor) or _C.sharding_of(tensor)
    if handle is None:
        return False
    own = sharding.Sharding(handle)
    sizes = dict(zip(own.mesh.axis_names, own.mesh.mesh_shape, strict=True))
    for size, entry in zip(tensor.shape, own.spec, strict=True):
        axes = [sizes[name] for name in entry] if isinstance(entry, tuple) else []
        if sum(n > 1 for n in axes) > 1 and size % math.prod(axes):
            return True
    return False


def _pieces(tensor: torch.Tensor) -> dict[int, torch.Tensor]:
    """What each device of this process holds, by its id."""
    data, handle = _C.local_data(tensor)
    handle = handle or _C.annotation(tensor)
    assert handle is not None  # what is cut has a sharding
    known = sharding.Sharding(handle)
    ids = [int(known.mesh.device_ids[position]) for position in known.addressable_positions]
    return dict(zip(ids, data, strict=True))


def _in_order(named: Sequence[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
    """The elements of shards, in the order of the devices that they are for.

    Raises:
        RuntimeError: one is for no device of this process, or two are for the same.
    """
    names = [f"{runtime.device_type()}:{device}" for device in _own_devices()]
    found: dict[str, torch.Tensor] = {}
    for device, data in named:
        if device not in names or device in found:
            raise RuntimeError(
                f"a shard is for the device {device!r}. Expected one for each of {names}. Take "
                "those that local_shards gives."
            )
        found[device] = data
    return [found[name] for name in names if name in found]


def load(tensor: torch.Tensor, named: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Overwrites a tensor with padded shards, by the device of this process that each is for."""
    found, shards = sharding_for(tensor), _in_order(named)
    if found.kind == ShardingType.REPLICATED:
        raise RuntimeError(
            "the tensor is replicated. Expected one that is cut. Write t.copy_(values) instead."
        )
    wanted, count = padded_shape(tensor.shape, found), len(_own_devices())
    if len(shards) != count:
        raise RuntimeError(f"{len(shards)} shards were given. Expected one for each of {count}.")
    for i, shard in enumerate(shards):
        if list(shard.shape) != wanted:
            raise RuntimeError(
                f"shard {i} has shape {tuple(shard.shape)}. Expected {tuple(wanted)}, with padding."
            )
    places = places_of(tensor.shape, found)
    by_device = {
        device: shard[tuple(slice(0, s.stop - s.start) for s in indices)].contiguous()
        for device, shard, (_, indices) in zip(_own_devices(), shards, places, strict=True)
    }
    if _is_nested(tensor):
        _write(tensor, by_device, places)
    else:
        _take(tensor, by_device)


def _write(tensor: torch.Tensor, by_device: dict[int, torch.Tensor], places: list) -> None:
    """Writes all elements, wherever they lie."""
    if runtime.process_count() > 1:
        raise NotImplementedError(
            f"several axes cut a dim of {tuple(tensor.shape)} in parts of different sizes, and "
            "there are several processes. Expected parts of one size. Cut by one axis, or pad."
        )
    whole = torch.zeros(tensor.shape, dtype=tensor.dtype)
    for piece, (_, indices) in zip(by_device.values(), places, strict=True):
        whole[tuple(indices)] = piece
    with torch.no_grad():
        tensor.copy_(whole.to("spmdx"))


def _take(tensor: torch.Tensor, by_device: dict[int, torch.Tensor]) -> None:
    handle = _C.annotation(tensor) or _C.sharding_of(tensor)
    assert handle is not None
    annotated = sharding.annotate(tensor, handle)
    known = sharding.Sharding(handle)
    ids = [int(known.mesh.device_ids[position]) for position in known.addressable_positions]
    annotated.load_local_shards_([by_device[i].clone() for i in ids])


def from_shards(
    shards: Sequence[torch.Tensor], found: OpSharding, shape: Sequence[int] | None
) -> torch.Tensor:
    """A tensor on the device made of one CPU tensor for each device of this process."""
    count = len(_own_devices())
    if len(shards) != count:
        raise RuntimeError(f"{len(shards)} shards were given. Expected one for each of {count}.")
    local = list(shards[0].shape)
    tiles = [1] * len(local)
    if found.kind != ShardingType.REPLICATED:
        tiles = list(found.tile.shape)[: len(local)]
    whole = [size * n for size, n in zip(local, tiles, strict=True)]
    target = whole if shape is None else list(shape)
    fits = len(target) == len(local) and all(
        math.ceil(size / n) == of for size, n, of in zip(target, tiles, local, strict=True)
    )
    if not fits:
        raise RuntimeError(
            f"shards of shape {tuple(local)} do not make a tensor of shape {tuple(target)} under "
            f"{found}. Expected parts of ceil(size / number), padded at the end."
        )
    result = torch.zeros(target, dtype=shards[0].dtype)
    for shard, (_, indices) in zip(shards, places_of(target, found), strict=True):
        if isinstance(indices, EllipsisType):
            result[...] = shard
        else:
            result[tuple(indices)] = shard[tuple(slice(0, s.stop - s.start) for s in indices)]
    return home.annotate(result.to("spmdx"), found)
