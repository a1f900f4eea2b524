# SPDX-License-Identifier: Apache-2.0
"""Saving: who writes which box, the files of boxes, and the metadata over them."""

import io
import os
import shutil
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch.utils._pytree import tree_leaves

from spmdx._base import logs
from spmdx._base.progress import progress
from spmdx._checkpoint.agree import agree_on_tree
from spmdx._checkpoint.format.boxes import (
    Box,
    holders_of,
    is_device_tensor,
    pieces_of,
    wait_for_steps,
    whole,
)
from spmdx._checkpoint.format.folder import MARK, begin, commit, require_seen
from spmdx._checkpoint.format.manifest import (
    METADATA,
    SUFFIX,
    Chunk,
    Saved,
    checksum,
    seed_of,
    write_manifest,
)
from spmdx._checkpoint.format.read import require_small
from spmdx._checkpoint.format.schema import require_whole
from spmdx._checkpoint.together import Exchange, alone, together
from spmdx._checkpoint.tree import Tree, flatten
from spmdx._world.processes import process_count, process_index
from spmdx.errors import CheckpointError


@dataclass
class Snapshot:
    """What is to be saved: all entries, still without files, and what this process writes."""

    entries: dict[str, Saved] = field(default_factory=dict)
    own: list[tuple[str, Box, torch.Tensor | bytes]] = field(default_factory=list)


def snapshot(state: Any, copy: bool, exchange: Exchange = alone) -> Snapshot:
    """Look at ``state``; with ``copy`` later changes of it are not seen."""
    tree, result = agree_on_tree(exchange, lambda: flatten(state)), Snapshot()
    together(exchange, lambda: _take(tree, result, copy))
    return result


def _take(tree: Tree, result: Snapshot, copy: bool) -> None:
    """In the order of names, since who writes what must not depend on the order of a dict."""
    wait_for_steps()
    load = [0] * process_count()
    for name, entry in tree.entries.items():
        value = entry.value
        if isinstance(value, torch.Tensor):
            _require_plain(name, value)
            result.entries[name] = Saved(entry.path, value.dtype, tuple(value.shape), ())
        else:
            result.entries[name] = Saved(entry.path, None, (), ())
    for name in sorted(tree.entries):
        value = tree.entries[name].value
        if isinstance(value, torch.Tensor):
            _add_boxes(result, name, value, load, copy)
        elif process_index() == 0:
            result.own.append((name, whole(()), _as_bytes(name, value)))


def _add_boxes(
    result: Snapshot, name: str, tensor: torch.Tensor, load: list[int], copy: bool
) -> None:
    """Each box goes to the holder that has least to write: every process finds the same answer."""
    pieces = {piece.box: piece.data for piece in pieces_of(tensor)}
    for box, processes in holders_of(tensor).items():
        writer = min(processes, key=lambda process: load[process])
        load[writer] += box.numel * tensor.element_size()
        if writer == process_index():
            data = pieces[box]
            result.own.append((name, box, data.clone() if copy else data))


def _require_plain(name: str, tensor: torch.Tensor) -> None:
    from torch.distributed.tensor import DTensor

    if tensor.layout != torch.strided or tensor.is_meta or isinstance(tensor, DTensor):
        raise CheckpointError(
            f"{name} is a {type(tensor).__name__} on {tensor.device} with layout {tensor.layout}. "
            "Expected a dense tensor with data. Convert it first, or leave it out."
        )


_SIMPLE = (int, float, bool, complex, type(None))  # types that any unpickler makes


def _as_bytes(name: str, value: Any) -> bytes:
    """A value as torch.distributed.checkpoint stores it, if it can be read without trust."""
    stream = io.BytesIO()
    if type(value) in _SIMPLE:
        torch.save(value, stream)
        return stream.getvalue()
    try:
        if any(is_device_tensor(leaf) for leaf in tree_leaves(value)):
            raise TypeError("it holds a tensor on device 'spmdx' in a tuple")
        torch.save(value, stream)
        require_small(stream, len(stream.getvalue()))
        torch.load(stream, weights_only=True)
    except Exception as error:  # pickle raises what the value's own code raises
        raise CheckpointError(
            f"{name}, a {type(value).__name__}, cannot be saved so that loading it is safe: "
            f"{str(error).split('. ')[0]}. Expected tensors, numbers, texts, lists and dicts. "
            "Store those, or leave it out."
        ) from error
    return stream.getvalue()


class _Counted:
    """A file that knows how many bytes went through it, their CRC-32, and its first error."""

    def __init__(self, file: io.BufferedWriter, seed: int):
        self._file, self.crc = file, seed
        self.length = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.length += len(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        self._file.flush()


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements in memory of their own size, as torch.save stores whole memory."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    small = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if small else tensor.clone()


def _put(data: torch.Tensor | bytes, file: _Counted) -> None:
    try:
        if isinstance(data, bytes):
            file.write(data)
        else:
            torch.save(_compact(data), cast(IO[bytes], file))  # which writes and flushes, no more
    except Exception as error:
        # On a full disk torch.save still ends its file, and raises another error.
        if file.error is not None:
            raise file.error from error
        raise


def _size(one: tuple[str, Box, torch.Tensor | bytes]) -> int:
    data = one[2]
    return len(data) if isinstance(data, bytes) else data.numel() * data.element_size()


def _write_own(folder: Path, snap: Snapshot) -> list[list]:
    """Write this process's file; [name, offsets, sizes, file, start, length, CRC] of each chunk."""
    records: list[list] = []
    if not snap.own:
        return records
    name_of_file, start = f"__{process_index()}_0{SUFFIX}", 0
    total = sum(map(_size, snap.own))
    with open(folder / name_of_file, "xb") as file, progress("saving", total) as advance:
        for one in snap.own:
            name, box, data = one
            counted = _Counted(file, seed_of(name, box))
            _put(data, counted)
            records.append([name, *box, name_of_file, start, counted.length, counted.crc])
            start += counted.length
            advance(_size(one))
        file.flush()
        os.fsync(file.fileno())
    return records


def _write_metadata(folder: Path, snap: Snapshot, records: list[list]) -> None:
    from spmdx._checkpoint.format.metadata import write_metadata

    entries = _entries(snap, records)
    write_metadata(folder, entries)
    files: dict[str, list] = {}
    for path in sorted(folder.iterdir()):
        crc = checksum(path) if path.name == METADATA else None
        if path.name != MARK:
            files[path.name] = [path.stat().st_size, crc]
    try:
        for name, saved in entries.items():
            require_whole(name, saved, {file: size for file, (size, _) in files.items()})
    except ValueError as error:
        raise CheckpointError(
            f"what the processes wrote to {folder} is no checkpoint: {error}. Expected every "
            "element once, in files that process 0 sees. Save to a file system that all processes "
            "share."
        ) from error
    write_manifest(folder, entries, files)


def _entries(snap: Snapshot, records: list[list]) -> dict[str, Saved]:
    """What is saved, with the chunks that the processes report as written."""
    chunks: dict[str, list[Chunk]] = {name: [] for name in snap.entries}
    for name, offsets, sizes, *place in sorted(records, key=lambda record: record[:3]):
        chunks[name].append(Chunk(Box(tuple(offsets), tuple(sizes)), *place))
    return {
        name: Saved(saved.path, saved.dtype, saved.shape, tuple(chunks[name]))
        for name, saved in snap.entries.items()
    }


def _write_seen(folder: Path, snap: Snapshot) -> list[list]:
    require_seen(folder)
    return _write_own(folder, snap)


def write(snap: Snapshot, target: Path, exchange: Exchange) -> None:
    """Write the checkpoint; when it returns, in any process, it is in place."""
    first, began = process_index() == 0, time.monotonic()
    name = together(exchange, lambda: begin(target) if first else None)[0]
    folder = target.parent / name

    def alone_or_first(work: Callable[[], None]) -> None:
        together(exchange, work if first else lambda: None)

    try:
        records: list[list] = sum(together(exchange, lambda: _write_seen(folder, snap)), [])
        alone_or_first(lambda: _write_metadata(folder, snap, records))
        alone_or_first(lambda: commit(folder, target))
        logs.checkpoint.info(
            "saved %s: this process wrote %d bytes, in %.3f s",
            target,
            sum(map(_size, snap.own)),
            time.monotonic() - began,
        )
    except BaseException:
        if first:
            shutil.rmtree(folder, ignore_errors=True)
        raise
