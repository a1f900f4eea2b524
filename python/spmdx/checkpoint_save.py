# SPDX-License-Identifier: Apache-2.0
"""Saving: who writes which box, the files of boxes, and the metadata over them."""

import io
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from spmdx.checkpoint_boxes import Box, holders_of, is_device_tensor, pieces_of, settle, whole
from spmdx.checkpoint_folder import begin, commit
from spmdx.checkpoint_manifest import METADATA, SUFFIX, Chunk, Saved, checksum, write_manifest
from spmdx.checkpoint_together import Exchange, together
from spmdx.checkpoint_tree import flatten
from spmdx.errors import CheckpointError
from spmdx.runtime import process_count, process_index


@dataclass
class Snapshot:
    """What is to be saved: all entries, still without files, and what this process writes."""

    entries: dict[str, Saved] = field(default_factory=dict)
    boxes: dict[str, list[Box]] = field(default_factory=dict)
    own: list[tuple[str, int, torch.Tensor | bytes]] = field(default_factory=list)


def snapshot(state: Any, copy: bool) -> Snapshot:
    """Look at ``state``; with ``copy`` later changes of it are not seen."""
    settle()
    result, load = Snapshot(), [0] * process_count()
    for name, entry in flatten(state).entries.items():
        value = entry.value
        if isinstance(value, torch.Tensor):
            _require_plain(name, value)
            result.entries[name] = Saved(entry.path, value.dtype, tuple(value.shape), ())
            _add_boxes(result, name, value, load, copy)
        else:
            result.entries[name] = Saved(entry.path, None, (), ())
            result.boxes[name] = [whole(())]
            if process_index() == 0:
                result.own.append((name, 0, _as_bytes(name, value)))
    return result


def _add_boxes(
    result: Snapshot, name: str, tensor: torch.Tensor, load: list[int], copy: bool
) -> None:
    """Every box goes to the holder with the least to write: each process finds the same."""
    pieces = {piece.box: piece.data for piece in pieces_of(tensor)}
    holders = holders_of(tensor)
    result.boxes[name] = list(holders)
    for i, (box, processes) in enumerate(holders.items()):
        writer = min(processes, key=lambda process: load[process])
        load[writer] += box.numel * tensor.element_size()
        if writer == process_index():
            data = pieces[box]
            result.own.append((name, i, data.clone() if copy else data))


def _require_plain(name: str, tensor: torch.Tensor) -> None:
    from torch.distributed.tensor import DTensor

    if tensor.layout != torch.strided or tensor.is_meta or isinstance(tensor, DTensor):
        raise CheckpointError(
            f"{name} is a {type(tensor).__name__} on {tensor.device} with layout {tensor.layout}. "
            "Expected a dense tensor with data. Convert it first, or leave it out."
        )


def _as_bytes(name: str, value: Any) -> bytes:
    """A value as torch.distributed.checkpoint stores it, if it can be read without trust."""
    stream = io.BytesIO()
    try:
        if any(is_device_tensor(leaf) for leaf in tree_leaves(value)):
            raise TypeError("it holds a tensor on device 'spmdx' in a tuple")
        torch.save(value, stream)
        torch.load(io.BytesIO(stream.getvalue()), weights_only=True)
    except Exception as error:  # pickle raises what the value's own code raises
        raise CheckpointError(
            f"{name}, a {type(value).__name__}, cannot be saved so that loading it is safe: "
            f"{str(error).split('. ')[0]}. Expected tensors, numbers, texts, lists and dicts. "
            "Store those, or leave it out."
        ) from error
    return stream.getvalue()


class _Counted:
    """A file that knows how many bytes went through it, and their CRC-32."""

    def __init__(self, file: io.BufferedWriter):
        self._file = file
        self.length = self.crc = 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.length += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements in memory of their own size, as torch.save stores whole memory."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    small = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if small else tensor.clone()


def _write_own(folder: Path, snap: Snapshot) -> list[list]:
    """Write this process's file; [name, number of the box, file, start, length, CRC] of each."""
    records: list[list] = []
    if not snap.own:
        return records
    name_of_file, start = f"__{process_index()}_0{SUFFIX}", 0
    with open(folder / name_of_file, "xb") as file:
        for name, i, data in snap.own:
            counted = _Counted(file)
            if isinstance(data, bytes):
                counted.write(data)
            else:
                torch.save(_compact(data), counted)
            records.append([name, i, name_of_file, start, counted.length, counted.crc])
            start += counted.length
        file.flush()
        os.fsync(file.fileno())
    return records


def _write_metadata(folder: Path, snap: Snapshot, records: list[list]) -> None:
    from spmdx.checkpoint_dcp import write_metadata

    chunks: dict[str, list[Chunk]] = {name: [] for name in snap.entries}
    for name, i, *place in sorted(records, key=lambda record: record[:2]):
        chunks[name].append(Chunk(snap.boxes[name][i], *place))
    entries = {
        name: Saved(saved.path, saved.dtype, saved.shape, tuple(chunks[name]))
        for name, saved in snap.entries.items()
    }
    write_metadata(folder, entries)
    files: dict[str, list] = {}
    for path in sorted(folder.iterdir()):
        crc = checksum(path) if path.name == METADATA else None
        files[path.name] = [path.stat().st_size, crc]
    write_manifest(folder, entries, files)


def write(snap: Snapshot, target: Path, exchange: Exchange) -> None:
    """Write the checkpoint; when it returns, in any process, it is in place."""
    first = process_index() == 0
    name = together(exchange, lambda: begin(target) if first else None)[0]
    folder = target.parent / name

    def alone_or_first(work: Callable[[], None]) -> None:
        together(exchange, work if first else lambda: None)

    try:
        records = sum(together(exchange, partial(_write_own, folder, snap)), [])
        alone_or_first(lambda: _write_metadata(folder, snap, records))
        alone_or_first(lambda: commit(folder, target))
    except BaseException:
        if first:
            shutil.rmtree(folder, ignore_errors=True)
        raise
