# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.checkpoint asks of a tensor, answered for tensors on the device."""

from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.sharding import get_sharding
from spmdx._checkpoint.format.boxes import Box, fresh, pieces_of, release, wait_for_steps
from spmdx.errors import CheckpointError


class _OnDevice:
    """An attribute that tensors on device "spmdx" have; on all others it does not exist.

    It stands on ``torch.Tensor``, since what a state dict holds are plain tensors. The class itself
    has it, as properties do: torch.compile asks the class for whatever dir() lists.
    """

    def __init__(self, method: Callable):
        self._method = method

    def __get__(self, tensor: torch.Tensor | None, owner: type) -> Any:
        if tensor is None:
            return self
        if not _C.is_lazy(tensor):
            raise AttributeError(self._method.__name__)
        return self._method.__get__(tensor, owner)

    def __set__(self, tensor: torch.Tensor, value: Any) -> None:
        """torch.compile and torch.overrides take this for a property, and ask for its getter."""
        raise AttributeError(f"{self._method.__name__} cannot be set")


def _write_items(tensor: torch.Tensor, fqn: str, _: Any) -> list[Any]:
    """One item for each distinct box of this process; replicas elsewhere are dropped later."""
    from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    properties = TensorProperties(dtype=tensor.dtype)
    return [
        WriteItem(
            MetadataIndex(fqn, box.offsets),
            WriteItemType.SHARD,
            tensor_data=TensorWriteData(_chunk(box), properties, tensor.size()),
        )
        for box, _ in pieces_of(tensor)
    ]


def _chunk_list(tensor: torch.Tensor) -> list[Any]:
    """The boxes of this process that a load will write to, in memory of the tensor's own."""
    _own_memory(tensor)
    return [_chunk(box) for box, _ in pieces_of(tensor)]


def _tensor_shard(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """The elements of a box that one of the two functions above has named."""
    return next(data for box, data in pieces_of(tensor) if box.offsets == tuple(index.offset))


def _chunk(box: Box) -> Any:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

    return ChunkStorageMetadata(torch.Size(box.offsets), torch.Size(box.sizes))


def _own_memory(tensor: torch.Tensor) -> None:
    """Copy the elements to memory that nobody else reads; the values stay.

    torch.distributed.checkpoint writes into the shards, and clones may share theirs.
    """
    wait_for_steps()
    new = fresh(tensor.shape, tensor.dtype, get_sharding(tensor))
    sources = {box: data for box, data in pieces_of(tensor)}
    for box, data in pieces_of(new):
        data.copy_(sources[box])
    del sources
    release([tensor])
    with torch.no_grad():
        tensor.detach().copy_(new)
    wait_for_steps()
    if not _same_memory(tensor, new):
        raise CheckpointError(
            f"a tensor of shape {tuple(tensor.shape)} is a view of another one, which is to be "
            "loaded. Expected a tensor of its own. Load the other one, or use "
            "spmdx.checkpoint.load."
        )


def _same_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    pairs = zip(pieces_of(tensor), pieces_of(other), strict=True)
    return tensor.numel() == 0 or all(a.data.data_ptr() == b.data.data_ptr() for a, b in pairs)


def install() -> None:
    """Give tensors on the device the protocol. Other tensors stay as they are."""
    methods: dict[str, Callable] = {
        "__create_write_items__": _write_items,
        "__create_chunk_list__": _chunk_list,
        "__get_tensor_shard__": _tensor_shard,
    }
    for name, method in methods.items():
        setattr(torch.Tensor, name, _OnDevice(method))
