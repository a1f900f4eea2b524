# SPDX-License-Identifier: Apache-2.0
"""The metadata file of torch.distributed.checkpoint: written for it, and read without trust."""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from spmdx.checkpoint_boxes import Box, whole
from spmdx.checkpoint_manifest import MEND, METADATA, Chunk, Saved, own_file
from spmdx.errors import CheckpointError

_RECORDS = (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
    _MEM_FORMAT_ENCODING,
    _StorageInfo,
)
_PATHS = {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"}


def write_metadata(folder: Path, entries: dict[str, Saved]) -> None:
    """Write what torch.distributed.checkpoint reads first."""
    metadata = Metadata(
        state_dict_metadata={name: _described(saved) for name, saved in entries.items()},
        planner_data={name: saved.path for name, saved in entries.items()},
        storage_data={
            _index(name, saved, i): _StorageInfo(chunk.file, chunk.start, chunk.length)
            for name, saved in entries.items()
            for i, chunk in enumerate(saved.chunks)
        },
        storage_meta=StorageMeta(),
        version=CURRENT_DCP_VERSION,
    )
    with open(folder / METADATA, "wb") as file:
        pickle.dump(metadata, file)
        file.flush()
        os.fsync(file.fileno())


def _described(saved: Saved) -> TensorStorageMetadata | BytesStorageMetadata:
    if saved.dtype is None:
        return BytesStorageMetadata()
    chunks = [
        ChunkStorageMetadata(torch.Size(c.box.offsets), torch.Size(c.box.sizes))
        for c in saved.chunks
    ]
    return TensorStorageMetadata(
        TensorProperties(dtype=saved.dtype), torch.Size(saved.shape), chunks
    )


def _index(name: str, saved: Saved, i: int) -> MetadataIndex:
    if saved.dtype is None:
        return MetadataIndex(name)
    return MetadataIndex(name, saved.chunks[i].box.offsets, i)


class _Reader(
    pickle._Unpickler
):  # in Python: the one in C takes any memory a damaged file asks for
    """Unpickles records of torch.distributed.checkpoint, numbers, texts and containers only."""

    def find_class(self, module: str, name: str) -> Any:
        for record in _RECORDS:
            if (module, name) == (record.__module__, record.__qualname__):
                return record
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) in (("torch", "Size"), ("torch.serialization", "_get_layout")):
            return torch.Size if name == "Size" else torch.serialization._get_layout
        if module.split(".")[0] == "pathlib" and name in _PATHS:
            return lambda *parts: "/".join(map(str, parts))
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def load_build(self) -> None:
        if not isinstance(self.stack[-2], _RECORDS):  # never the attributes of a class
            raise pickle.UnpicklingError("it changes something that is no record")
        super().load_build()

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}


def read_metadata(folder: Path) -> dict[str, Saved]:
    """The entries of a checkpoint that torch.distributed.checkpoint wrote by itself."""
    path = folder / METADATA
    try:
        metadata = _Reader(io.BytesIO(path.read_bytes())).load()
        if not isinstance(metadata, Metadata):
            raise TypeError(f"it holds a {type(metadata).__name__}")
        return {
            name: _saved(folder, name, described, metadata)
            for name, described in metadata.state_dict_metadata.items()
        }
    except CheckpointError:
        raise
    except Exception as error:  # whatever a damaged pickle leads to
        raise CheckpointError(
            f"{path} cannot be read: {type(error).__name__}: {error}. Expected the metadata of "
            f"torch.distributed.checkpoint, with records of its own only. {MEND}."
        ) from error


def _saved(folder: Path, name: str, described: Any, metadata: Metadata) -> Saved:
    path = tuple((metadata.planner_data or {}).get(name, (name,)))
    if isinstance(described, BytesStorageMetadata):
        chunk = _chunk(folder, metadata.storage_data[MetadataIndex(name)], whole(()))
        return Saved(path, None, (), (chunk,))
    dtype, shape = described.properties.dtype, _sizes(described.size)
    boxes = [Box(_sizes(c.offsets), _sizes(c.sizes)) for c in described.chunks]
    if not isinstance(dtype, torch.dtype) or any(not _fits(box, shape) for box in boxes):
        raise ValueError(f"{name} has chunks that do not lie in it")
    if _overlap(boxes, len(shape)):
        raise ValueError(f"{name} has chunks that overlap")
    infos = [metadata.storage_data[MetadataIndex(name, box.offsets)] for box in boxes]
    chunks = (_chunk(folder, info, box) for info, box in zip(infos, boxes, strict=True))
    return Saved(path, dtype, shape, tuple(chunks))


def _sizes(values: Any) -> tuple[int, ...]:
    sizes = tuple(values)
    if any(not isinstance(n, int) or n < 0 for n in sizes):
        raise ValueError(f"{sizes} are no sizes")
    return sizes


def _fits(box: Box, shape: tuple[int, ...]) -> bool:
    ends = [a + n for a, n in zip(*box, strict=True)]
    return len(ends) == len(shape) and all(e <= n for e, n in zip(ends, shape, strict=True))


def _overlap(boxes: list[Box], rank: int) -> bool:
    """Whether two of them share elements; looks along the dim with the most cuts."""
    dim = max(range(rank), key=lambda d: len({box.offsets[d] for box in boxes}), default=None)
    if dim is None:
        return len(boxes) > 1
    open_boxes: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.offsets[dim]):
        open_boxes = [b for b in open_boxes if b.offsets[dim] + b.sizes[dim] > box.offsets[dim]]
        if any(b.meet(box).numel for b in open_boxes):
            return True
        open_boxes.append(box)
    return False


def _chunk(folder: Path, info: _StorageInfo, box: Box) -> Chunk:
    start, length = _sizes((info.offset, info.length))
    if getattr(info, "transform_descriptors", None):
        raise ValueError(f"{info.relative_path} was transformed by {info.transform_descriptors}")
    return Chunk(box, own_file(folder, info.relative_path), start, length, None)
