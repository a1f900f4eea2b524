# SPDX-License-Identifier: Apache-2.0
"""Boxes: which part of a tensor each process holds, and new memory in the same layout."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

import torch

import spmdx._C as _C
from spmdx._annotate.sharding import get_sharding
from spmdx._annotate.spec import Sharding
from spmdx._world.devices import own_count
from spmdx._world.processes import process_count, process_index


class Box(NamedTuple):
    """A part of a tensor: where it begins and how long it is, for each dim."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.sizes)

    def meet(self, other: "Box") -> "Box":
        """What both contain; it has no elements where they do not meet."""
        starts = tuple(map(max, self.offsets, other.offsets))
        ends = [min(a + n, b + m) for a, n, b, m in zip(*self, *other, strict=True)]
        return Box(starts, tuple(max(0, e - s) for s, e in zip(starts, ends, strict=True)))

    def inside(self, outer: "Box") -> tuple[slice, ...]:
        """The slices that take it out of a tensor that holds ``outer``."""
        starts = [a - b for a, b in zip(self.offsets, outer.offsets, strict=True)]
        return tuple(slice(s, s + n) for s, n in zip(starts, self.sizes, strict=True))


class Piece(NamedTuple):
    """A box and its elements, in memory of the CPU."""

    box: Box
    data: torch.Tensor


def whole(shape: Sequence[int]) -> Box:
    return Box((0,) * len(shape), tuple(shape))


def is_device_tensor(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and _C.is_lazy(value)


def _process_of(device: int) -> int:
    return device // own_count()


def _boxes(sharding: Sharding, shape: Sequence[int]) -> Iterator[tuple[Box, int]]:
    """The box of every position that holds one, and the process that its device is in."""
    devices = sharding.mesh.device_ids[sharding.positions].tolist()
    for box, device in zip(sharding.boxes(shape), devices, strict=True):
        sizes = tuple(s.stop - s.start for s in box)
        yield Box(tuple(s.start for s in box), sizes), _process_of(device)


def _own_boxes(sharding: Sharding, shape: Sequence[int]) -> list[Box]:
    """The boxes of this process's devices, in the mesh's order."""
    return [box for box, process in _boxes(sharding, shape) if process == process_index()]


def _held(tensor: torch.Tensor) -> tuple[list[torch.Tensor], Sharding | None]:
    """What this process's devices hold, by position; without a sharding, the whole tensor."""
    data, handle = _C.local_data(tensor, on_host=False)
    return data, None if handle is None else Sharding(handle)


def pieces_of(tensor: torch.Tensor) -> list[Piece]:
    """The distinct boxes that this process holds. They share the tensor's memory."""
    if tensor.numel() == 0:
        return [Piece(whole(tensor.shape), torch.empty(tensor.shape, dtype=tensor.dtype))]
    if not _C.is_lazy(tensor):
        return [Piece(whole(tensor.shape), tensor.detach())]
    data, sharding = _held(tensor)
    if sharding is None:
        return [Piece(whole(tensor.shape), data[0])]
    boxes = _own_boxes(sharding, tensor.shape)
    return list({b: Piece(b, d) for b, d in zip(boxes, data, strict=True) if b.numel}.values())


def boxes_to_fill(tensor: torch.Tensor) -> list[Box]:
    """The distinct boxes that this process holds of a tensor laid out as ``tensor`` will be."""
    sharding = get_sharding(tensor)
    boxes = [whole(tensor.shape)] if sharding is None else _own_boxes(sharding, tensor.shape)
    return list(dict.fromkeys(box for box in boxes if box.numel))


def holders_of(tensor: torch.Tensor) -> dict[Box, list[int]]:
    """Every distinct box of it and the processes that hold it; equal in all processes."""
    if not _C.is_lazy(tensor):
        return {whole(tensor.shape): [0]}
    sharding = _held(tensor)[1]
    if sharding is None or tensor.numel() == 0:
        return {whole(tensor.shape): list(range(process_count()))}
    holders: dict[Box, list[int]] = {}
    for box, process in _boxes(sharding, tensor.shape):
        known = holders.setdefault(box, [])
        if process not in known:
            known.append(process)
    return {box: processes for box, processes in holders.items() if box.numel}


def fresh(shape: Sequence[int], dtype: torch.dtype, sharding: Sharding | None) -> torch.Tensor:
    """Zeros on the device, in memory that nothing else refers to: its pieces may be written."""
    return _C.blank(list(shape), dtype, None if sharding is None else sharding._handle)


def release(tensors: Sequence[torch.Tensor]) -> None:
    """Free what the tensors hold, before new memory is taken; they then read as zeros."""
    with torch.no_grad():
        for tensor in tensors:
            zero = torch.zeros((), dtype=tensor.dtype, device="spmdx")
            tensor.detach().copy_(zero.expand(tensor.shape))
    wait_for_steps()


def wait_for_steps() -> None:
    """Run what was traced, and wait."""
    _C.flush()
    _C.wait()
