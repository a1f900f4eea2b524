# SPDX-License-Identifier: Apache-2.0
"""Planners of torch.distributed.checkpoint: each shard is a chunk of its tensor.

Files are DCP's own, so that a checkpoint loads with any planner, mesh and number of devices.
"""

import math
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    create_default_local_load_plan,
    create_default_local_save_plan,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.utils import find_state_dict_object

from spmdx._xla import shards
from spmdx._xla.shards import XLAShard
from spmdx.torch_xla.experimental.distributed_checkpoint._helpers import (
    _CpuShards,
    _is_sharded_tensor,
    _unwrapped,
)


class SPMDSavePlanner(DefaultSavePlanner):
    """Saves sharded tensors shard by shard, and all else as DCP's default planner does.

    Example:
        >>> import tempfile
        >>> import torch, torch.distributed.checkpoint as dcp
        >>> import spmdx.torch_xla.experimental.distributed_checkpoint as xc
        >>> folder = tempfile.mkdtemp()
        >>> _ = dcp.save({"a": torch.ones(3)}, checkpoint_id=folder, planner=xc.SPMDSavePlanner())
        >>> loaded = {"a": torch.zeros(3)}
        >>> dcp.load(loaded, checkpoint_id=folder, planner=xc.SPMDLoadPlanner())
        >>> loaded["a"]
        tensor([1., 1., 1.])
    """

    sharded_state_dict: dict[str, Any]
    unsharded_state_dict: dict[str, Any]

    def __init__(self) -> None:
        super().__init__(flatten_sharded_tensors=False)
        self._pieces: dict[tuple[str, torch.Size], XLAShard] = {}

    # The order of arguments is torch_xla's; DCP gives them by name.
    def set_up_planner(  # type: ignore[override]
        self, state_dict: dict[str, Any], is_coordinator: bool = False, storage_meta: Any = None
    ) -> None:
        """Take what is to be saved; DCP calls it."""
        super().set_up_planner(
            state_dict=_unwrapped(state_dict),
            storage_meta=storage_meta,
            is_coordinator=is_coordinator,
        )
        self.sharded_state_dict, self.unsharded_state_dict = _separated(self.state_dict)

    def create_local_plan(self) -> SavePlan:
        """The items that this process writes; DCP calls it."""
        plan = create_default_local_save_plan(self.unsharded_state_dict, self.is_coordinator)
        items = [*plan.items]
        for name, value in self.sharded_state_dict.items():
            items += self._items_of(name, value)
        self.plan = SavePlan(items, planner_data=self.mappings)
        return self.plan

    def _items_of(self, name: str, value: "torch.Tensor | _CpuShards") -> list[WriteItem]:
        """One for each shard that is no replica of another."""
        held = value.shards if isinstance(value, _CpuShards) else shards.shards_of(value)
        whole = value.global_tensor if isinstance(value, _CpuShards) else value
        properties = TensorProperties(dtype=whole.dtype, requires_grad=whole.requires_grad)
        items = []
        for number, shard in enumerate(held):
            chunk = _chunk_of(shard)
            if shard.replica_id != 0 or not math.prod(chunk.sizes):
                continue
            self._pieces[name, chunk.offsets] = shard
            index = MetadataIndex(name, chunk.offsets, number)
            data = TensorWriteData(chunk, properties, whole.shape)
            items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        return items

    def lookup_object(self, index: MetadataIndex) -> Any:
        """What an item writes; DCP calls it."""
        if index.fqn in self.sharded_state_dict:
            assert index.offset is not None  # as _items_of made it
            return self._pieces[index.fqn, index.offset].unpadded_data
        return find_state_dict_object(self.unsharded_state_dict, index)


class SPMDLoadPlanner(DefaultLoadPlanner):
    """Loads into sharded tensors shard by shard, and into all else as DCP's default planner does.

    A tensor keeps its sharding. It gets its values at once, when all that it needs was read.

    Raises:
        RuntimeError: the checkpoint lacks a tensor, by ``create_local_plan``.
        ValueError: it has another shape there.
    """

    sharded_state_dict: dict[str, Any]
    unsharded_state_dict: dict[str, Any]

    def __init__(self) -> None:
        super().__init__(flatten_sharded_tensors=False)
        self._shards: dict[str, list[XLAShard]] = {}
        self._missing: dict[str, int] = {}  # items of a tensor that were not read yet

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take what is to be filled; DCP calls it."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self.sharded_state_dict, self.unsharded_state_dict = _separated(_unwrapped(self.state_dict))

    def create_local_plan(self) -> LoadPlan:
        """The items that this process reads; DCP calls it."""
        assert self.metadata is not None
        plan = create_default_local_load_plan(self.unsharded_state_dict, self.metadata, True)
        items = [*plan.items]
        for name, tensor in self.sharded_state_dict.items():
            found = self._items_of(name, tensor, self.metadata)
            self._missing[name] = len(found)
            items += found
        return LoadPlan(items)

    def _items_of(self, name: str, tensor: torch.Tensor, metadata: Metadata) -> list[ReadItem]:
        saved = metadata.state_dict_metadata.get(name)
        if not isinstance(saved, TensorStorageMetadata):
            raise RuntimeError(
                f"the checkpoint has no tensor {name}. Expected one of each name of the state "
                "dict. Leave it out, or load the checkpoint that has it."
            )
        if saved.size != tensor.shape:
            raise ValueError(
                f"{name} has shape {tuple(saved.size)} in the checkpoint, and "
                f"{tuple(tensor.shape)} in the state dict. Expected the same. Make the model as it "
                "was saved."
            )
        self._shards[name] = shards.shards_of(tensor)
        chunks = [_chunk_of(shard) for shard in self._shards[name]]
        # Items number the chunks that are given; those of no elements come last or are alone.
        numbers = [i for i, chunk in enumerate(chunks) if math.prod(chunk.sizes)]
        found = create_read_items_for_chunk_list(name, saved, [chunks[i] for i in numbers])
        return [_numbered(item, numbers) for item in found]

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """Where an item is read to; DCP calls it."""
        if index.fqn in self.sharded_state_dict:
            assert index.index is not None  # as _items_of made it
            return self._shards[index.fqn][index.index].unpadded_data
        return find_state_dict_object(self.unsharded_state_dict, index)

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """An item was read; DCP calls it."""
        name = read_item.dest_index.fqn
        if name not in self.sharded_state_dict:
            return
        self._missing[name] -= 1
        if not self._missing[name]:
            read = [(shard.shard_device, shard.data) for shard in self._shards.pop(name)]
            shards.load(self.sharded_state_dict[name], read)


def _separated(state_dict: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what is cut, all else)."""
    cut: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in state_dict.items():
        is_cut = isinstance(value, _CpuShards) or _is_sharded_tensor(value)
        (cut if is_cut else others)[name] = value
    return cut, others


def _chunk_of(shard: XLAShard) -> ChunkStorageMetadata:
    """Where a shard lies in its tensor."""
    indices: Any = shard.indices  # a list, as the tensor is cut
    sizes = torch.Size(s.stop - s.start for s in indices)
    return ChunkStorageMetadata(torch.Size(s.start for s in indices), sizes)


def _numbered(item: ReadItem, numbers: list[int]) -> ReadItem:
    """The same item, its shard counted among all."""
    index = item.dest_index
    assert index.index is not None
    into = MetadataIndex(index.fqn, index.offset, numbers[index.index])
    return ReadItem(
        item.type, into, item.dest_offsets, item.storage_index, item.storage_offsets, item.lengths
    )
