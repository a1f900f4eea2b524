# SPDX-License-Identifier: Apache-2.0
"""What files of a checkpoint may say: all of it is checked before any of it is used."""

import json
import math
import os
import reprlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from spmdx._checkpoint.format.boxes import Box, whole
from spmdx._checkpoint.format.cover import fault_of
from spmdx.errors import CheckpointError

MEND = "Load another checkpoint, or copy this one again from where it is whole"
_MOST = 2**63 - 1  # of bytes, elements and places
_DIMS, _DEPTH = 64, 100  # of dims and of nesting: more than PyTorch and states have
_SMALL = 1 << 20  # bytes that any index may have


def shown(value: Any) -> str:
    """A short text for a message: ``value`` may be of any size and depth."""
    text = reprlib.repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def parsed(text: bytes) -> Any:
    """JSON whose objects have every name once, and that has no NaN.

    Raises:
        ValueError, RecursionError: it is something else.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"it holds {constant}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("it says a name twice")
        return result

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def file_size(path: Path) -> int:
    """The status of a regular file: a link could lead elsewhere, and reading a pipe could wait.

    Raises:
        CheckpointError: it is missing, or something else.
    """
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path} is missing. Expected a file. {MEND}.") from None
    if not stat.S_ISREG(found.st_mode):
        raise CheckpointError(f"{path} is no regular file. Expected one. {MEND}.")
    return found.st_size


def read_whole(folder: Path, name: str) -> bytes:
    """The text of an index, which is smaller than the files it names.

    Raises:
        CheckpointError: it is larger, or no file.
    """
    path = folder / name
    size = file_size(path)
    if size > _SMALL:
        others = sum(f.stat().st_size for f in os.scandir(folder) if f.name != name and f.is_file())
        if size > others:
            raise CheckpointError(
                f"{path} has {size} bytes, all other files {others}. Expected it to be smaller "
                f"than what it speaks of. {MEND}."
            )
    return path.read_bytes()


def own_file(folder: Path, name: Any) -> str:
    """``name``, if it names a file in ``folder`` itself: nothing elsewhere is ever opened."""
    if type(name) is not str or name in ("", ".", "..") or {"/", "\\", "\0"} & set(name):
        raise CheckpointError(
            f"{folder} names the file {shown(name)}. Expected a file in its own folder. {MEND}."
        )
    return name


def number(value: Any, most: int = _MOST) -> int:
    """``value``, if it is a whole number from 0 to ``most``."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{shown(value)} is no whole number from 0 to {most}")
    return value


def numbers(values: Any) -> tuple[int, ...]:
    """As a shape or the place of a box."""
    if type(values) not in (list, tuple, torch.Size) or len(values) > _DIMS:
        raise ValueError(f"{shown(values)} are no sizes")
    return tuple(map(number, values))


def row(value: Any, length: int) -> list[Any]:
    if type(value) is not list or len(value) != length:
        raise ValueError(f"{shown(value)} is no list of {length}")
    return value


def table(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError(f"{shown(value)} is no object")
    return value


def path_of(value: Any) -> tuple[str | int, ...]:
    """Keys of dicts and places in lists, from the outermost."""
    if type(value) not in (list, tuple) or not 0 < len(value) <= _DEPTH:
        raise ValueError(f"{shown(value)} is no path")
    return tuple(part if type(part) is str else number(part) for part in value)


def dtype_of(name: Any) -> torch.dtype | None:
    dtype = getattr(torch, name, None) if type(name) is str and name.isidentifier() else None
    if name is not None and not isinstance(dtype, torch.dtype):
        raise ValueError(f"{shown(name)} is no dtype")
    return dtype


def require_whole(name: str, saved: Any, room: Mapping[str, int]) -> None:
    """Raise ValueError unless the chunks of ``saved`` are all of it, once, and lie in the files.

    Args:
        name: of the entry.
        saved: an entry, a :class:`spmdx._checkpoint.format.manifest.Saved`.
        room: the bytes that each file has.
    """
    if math.prod(max(1, n) for n in saved.shape) > _MOST:
        raise ValueError(f"{shown(name)} has the shape {saved.shape}")
    item = 0 if saved.dtype is None else saved.dtype.itemsize
    for chunk in saved.chunks:
        if chunk.file not in room or chunk.start + chunk.length > room[chunk.file]:
            raise ValueError(f"{shown(name)} has a chunk that is not in a file")
        if chunk.box.numel * item > chunk.length:
            raise ValueError(f"{shown(name)} has a chunk with too few bytes")
    boxes: list[Box] = [chunk.box for chunk in saved.chunks]
    if saved.dtype is None and (saved.shape or boxes != [whole(())]):
        raise ValueError(f"{shown(name)} is no tensor, and has more than one chunk or none")
    if fault := fault_of(boxes, saved.shape):
        raise ValueError(f"{shown(name)} has chunks that {fault}")
