# SPDX-License-Identifier: Apache-2.0
"""The metadata file of torch.distributed.checkpoint: written for it, and read without trust."""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint.metadata as records
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo

from spmdx._checkpoint.format.boxes import Box, whole
from spmdx._checkpoint.format.manifest import METADATA, Chunk, Saved
from spmdx._checkpoint.format.schema import (
    MEND,
    file_size,
    number,
    numbers,
    own_file,
    path_of,
    require_whole,
    shown,
    table,
)
from spmdx._checkpoint.format.unpickle import Reader
from spmdx.errors import CheckpointError


def write_metadata(folder: Path, entries: dict[str, Saved]) -> None:
    """Write what torch.distributed.checkpoint reads first."""
    metadata = records.Metadata(
        state_dict_metadata={name: _described(saved) for name, saved in entries.items()},
        planner_data={name: saved.path for name, saved in entries.items()},
        storage_data={
            _index(name, saved, i): _StorageInfo(chunk.file, chunk.start, chunk.length)
            for name, saved in entries.items()
            for i, chunk in enumerate(saved.chunks)
        },
        storage_meta=records.StorageMeta(),
        version=CURRENT_DCP_VERSION,
    )
    with open(folder / METADATA, "wb") as file:
        pickle.dump(metadata, file)
        file.flush()
        os.fsync(file.fileno())


def _described(saved: Saved) -> records.TensorStorageMetadata | records.BytesStorageMetadata:
    if saved.dtype is None:
        return records.BytesStorageMetadata()
    chunks = [
        records.ChunkStorageMetadata(torch.Size(c.box.offsets), torch.Size(c.box.sizes))
        for c in saved.chunks
    ]
    return records.TensorStorageMetadata(
        records.TensorProperties(dtype=saved.dtype), torch.Size(saved.shape), chunks
    )


def _index(name: str, saved: Saved, i: int) -> records.MetadataIndex:
    if saved.dtype is None:
        return records.MetadataIndex(name)
    return records.MetadataIndex(name, saved.chunks[i].box.offsets, i)


def read_metadata(folder: Path, content: bytes) -> dict[str, Saved]:
    """The entries of a checkpoint that torch.distributed.checkpoint wrote by itself."""
    path = folder / METADATA
    try:
        metadata = Reader(io.BytesIO(content)).load()
        if not isinstance(metadata, records.Metadata):
            raise TypeError(f"it holds a {type(metadata).__name__}")
        sizes: dict[str, int] = {}
        entries = {}
        for name, described in table(metadata.state_dict_metadata).items():
            entries[name] = _saved(name, described, metadata)
            for chunk in entries[name].chunks:
                if chunk.file not in sizes:
                    sizes[chunk.file] = file_size(folder / own_file(folder, chunk.file))
            require_whole(name, entries[name], sizes)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise CheckpointError(
            f"{path} cannot be read: {type(error).__name__}: {str(error)[:200]}. Expected the "
            f"metadata of torch.distributed.checkpoint, with records of its own only. {MEND}."
        ) from error
    return entries


def _saved(name: Any, described: Any, metadata: records.Metadata) -> Saved:
    if type(name) is not str:
        raise ValueError("it has an entry without a name")
    path = path_of((metadata.planner_data or {}).get(name, (name,)))
    places = table(metadata.storage_data)
    if isinstance(described, records.BytesStorageMetadata):
        return Saved(
            path, None, (), (_chunk(name, whole(()), places, records.MetadataIndex(name)),)
        )
    dtype, shape = described.properties.dtype, numbers(described.size)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{shown(name)} has no dtype")
    boxes = [Box(numbers(c.offsets), numbers(c.sizes)) for c in described.chunks]
    chunks = (_chunk(name, box, places, records.MetadataIndex(name, box.offsets)) for box in boxes)
    return Saved(path, dtype, shape, tuple(chunks))


def _chunk(name: str, box: Box, places: dict, index: records.MetadataIndex) -> Chunk:
    if index not in places:
        raise ValueError(f"{shown(name)} has a chunk that is nowhere")
    info = places[index]
    if not isinstance(info, _StorageInfo) or type(info.relative_path) is not str:
        raise ValueError(f"{shown(name)} has a chunk in no file")
    if getattr(info, "transform_descriptors", None):
        raise ValueError(f"{shown(info.relative_path)} was transformed")
    return Chunk(box, info.relative_path, number(info.offset), number(info.length), None)
