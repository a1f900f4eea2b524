# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint holds, and the JSON manifest that says so with checksums."""

import json
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from spmdx._checkpoint.format.boxes import Box
from spmdx._checkpoint.format.schema import (
    MEND,
    dtype_of,
    file_size,
    number,
    numbers,
    own_file,
    parsed,
    path_of,
    require_whole,
    row,
    shown,
    table,
)
from spmdx.errors import CheckpointError

MANIFEST = "spmdx.manifest.json"
METADATA = ".metadata"  # what torch.distributed.checkpoint reads first
SUFFIX = ".distcp"
_FORMAT = 2
_UNSEEDED = 1  # a format whose checksums do not tell one chunk from another
_WHOLE = re.compile(rb'\{"crc32": (\d{1,10}), "manifest": (\{.*\})\}\n?', re.DOTALL)
_CRC = 2**32 - 1
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Chunk:
    """A box and where its bytes lie; ``crc`` starts from ``seed``, and may be None."""

    box: Box
    file: str
    start: int
    length: int
    crc: int | None
    seed: int = 0


@dataclass(frozen=True)
class Saved:
    """One entry of a checkpoint: a tensor, or with dtype None the one chunk of another value."""

    path: tuple[str | int, ...]
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    def __str__(self) -> str:
        if self.dtype is None:
            return "a value that is no tensor"
        return f"a tensor of shape {self.shape} and {self.dtype}"


def seed_of(name: str, box: Box) -> int:
    """What the checksum of a chunk starts from: no chunk of another entry or box fits."""
    return zlib.crc32(json.dumps([name, *box]).encode())


def checksum(path: Path, start: int = 0, length: int | None = None, seed: int = 0) -> int:
    """The CRC-32 of a part of a file, or of all of it; never holds more than a block."""
    crc = seed
    with open(path, "rb") as file:
        file.seek(start)
        left = os.fstat(file.fileno()).st_size - start if length is None else length
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            crc = zlib.crc32(block, crc)
            left -= len(block)
    return crc


def write_manifest(folder: Path, entries: dict[str, Saved], files: dict[str, list[int]]) -> None:
    """Write the manifest, with its own checksum; ``files`` are their sizes and, of some, CRCs."""
    body = json.dumps(
        {
            "format": _FORMAT,
            "files": files,
            "entries": {name: _to_json(saved) for name, saved in entries.items()},
        }
    )
    text = f'{{"crc32": {zlib.crc32(body.encode())}, "manifest": {body}}}\n'
    with open(folder / MANIFEST, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_manifest(folder: Path, text: bytes) -> dict[str, Saved]:
    """What the manifest ``text`` says; it and the sizes of all files are checked first."""
    try:
        parts = _WHOLE.fullmatch(text)
        if parts is None:
            raise ValueError("it does not begin and end as one")
        if zlib.crc32(parts[2]) != int(parts[1]):
            raise ValueError("its checksum does not fit")
        body = table(parsed(parts[2]))
        if sorted(body) != ["entries", "files", "format"]:
            raise ValueError("it lacks a part or has another one")
        if type(body["format"]) is not int or body["format"] not in (_UNSEEDED, _FORMAT):
            raise ValueError(f"its format is {shown(body['format'])}, known is {_FORMAT}")
        sizes = _files(folder, table(body["files"]))
        seeded = body["format"] == _FORMAT
        entries = {n: _from_json(n, e, seeded) for n, e in table(body["entries"]).items()}
        for name, saved in entries.items():
            require_whole(name, saved, sizes)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{folder / MANIFEST} is damaged or of another version: {error}. Expected it as it "
            f"was saved. {MEND}."
        ) from error
    return entries


def _files(folder: Path, files: dict[str, Any]) -> dict[str, int]:
    """The size of every file, compared with the files themselves."""
    sizes = {}
    for name, said in files.items():
        size, crc = row(said, 2)
        sizes[own_file(folder, name)] = number(size)
        _check_file(folder / name, size, None if crc is None else number(crc, _CRC))
    if METADATA not in sizes:
        raise ValueError(f"it lacks {METADATA}")
    return sizes


def _check_file(path: Path, size: int, crc: int | None) -> None:
    if not os.path.lexists(path):
        raise CheckpointError(f"{path} is missing. Expected a file of {size} bytes. {MEND}.")
    found = file_size(path)
    if found != size:
        raise CheckpointError(
            f"{path} has {found} bytes. Expected {size}: it was cut off or belongs to another "
            f"checkpoint. {MEND}."
        )
    if crc is not None and checksum(path) != crc:
        raise CheckpointError(
            f"{path} is damaged or belongs to another checkpoint: its checksum does not fit. "
            f"Expected it as it was saved. {MEND}."
        )


def _to_json(saved: Saved) -> list[Any]:
    dtype = None if saved.dtype is None else str(saved.dtype).removeprefix("torch.")
    chunks = [[*c.box, c.file, c.start, c.length, c.crc] for c in saved.chunks]
    return [saved.path, dtype, saved.shape, chunks]


def _from_json(name: str, entry: Any, seeded: bool) -> Saved:
    path, dtype, shape, chunks = row(entry, 4)
    keys = path_of(path)
    if ".".join(map(str, keys)) != name:
        raise ValueError(f"{shown(name)} has the path {shown(path)}")
    if type(chunks) is not list:
        raise ValueError(f"{shown(name)} has no list of chunks")
    read = tuple(_chunk(name, chunk, seeded) for chunk in chunks)
    return Saved(keys, dtype_of(dtype), numbers(shape), read)


def _chunk(name: str, chunk: Any, seeded: bool) -> Chunk:
    offsets, sizes, file, start, length, crc = row(chunk, 6)
    box = Box(numbers(offsets), numbers(sizes))
    if type(file) is not str:
        raise ValueError(f"{shown(file)} is no file")
    seed = seed_of(name, box) if seeded else 0
    return Chunk(box, file, number(start), number(length), number(crc, _CRC), seed)
