# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint holds, and the JSON manifest that says so with checksums."""

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from spmdx.checkpoint_boxes import Box
from spmdx.errors import CheckpointError

MANIFEST = "spmdx.manifest.json"
METADATA = ".metadata"  # what torch.distributed.checkpoint reads first
SUFFIX = ".distcp"
_FORMAT = 1
_BLOCK = 1 << 20
MEND = "Load another checkpoint, or copy this one again from where it is whole"


@dataclass(frozen=True)
class Chunk:
    """A box and where its bytes lie; ``crc`` is None where nobody noted one."""

    box: Box
    file: str
    start: int
    length: int
    crc: int | None


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


def checksum(path: Path, start: int = 0, length: int | None = None) -> int:
    """The CRC-32 of a part of a file, or of all of it; never holds more than a block."""
    crc = 0
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


def read_manifest(folder: Path) -> dict[str, Saved]:
    """The entries, after the manifest and the sizes of all files were checked."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
        body = content["manifest"]
        if zlib.crc32(json.dumps(body).encode()) != content["crc32"]:
            raise ValueError("its checksum does not fit")
        if body["format"] != _FORMAT:
            raise ValueError(f"its format is {body['format']!r}, known is {_FORMAT}")
        for name, (size, crc) in body["files"].items():
            _check_file(folder / own_file(folder, name), size, crc)
        return {name: _from_json(folder, entry) for name, entry in body["entries"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{folder / MANIFEST} is damaged or of another version: {error}. Expected it as it "
            f"was saved. {MEND}."
        ) from error


def own_file(folder: Path, name: Any) -> str:
    """``name``, if it can be that of a file in ``folder``: nothing elsewhere is ever opened."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise CheckpointError(
            f"the checkpoint {folder} names the file {name!r}. Expected a file in its own folder. "
            f"{MEND}."
        )
    return name


def _check_file(path: Path, size: int, crc: int | None) -> None:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing. Expected a file of {size} bytes. {MEND}.")
    if path.stat().st_size != size:
        raise CheckpointError(
            f"{path} has {path.stat().st_size} bytes. Expected {size}: it was cut off or belongs "
            f"to another checkpoint. {MEND}."
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


def _from_json(folder: Path, entry: list[Any]) -> Saved:
    path, name, shape, chunks = entry
    dtype = None if name is None else getattr(torch, name)
    if not isinstance(dtype, torch.dtype | None):
        raise ValueError(f"{name!r} is no dtype")
    return Saved(
        tuple(path),
        dtype,
        tuple(shape),
        tuple(
            Chunk(Box(tuple(offsets), tuple(sizes)), own_file(folder, file), start, length, crc)
            for offsets, sizes, file, start, length, crc in chunks
        ),
    )
