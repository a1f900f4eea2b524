# SPDX-License-Identifier: Apache-2.0
"""Reading: what a checkpoint holds, whether its bytes are sound, and single chunks of it."""

import io
import os
import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any, cast

import torch

from spmdx._checkpoint.format.manifest import (
    MANIFEST,
    METADATA,
    Chunk,
    Saved,
    checksum,
    read_manifest,
)
from spmdx._checkpoint.format.schema import MEND, file_size, read_whole
from spmdx.errors import CheckpointError


class Slice(io.RawIOBase):
    """A part of an open file, as a file: torch.load and zipfile see the chunk alone."""

    def __init__(self, file: io.BufferedIOBase, start: int, length: int):
        self._file, self._start, self._length, self._at = file, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._length)[whence]
        if self._at < 0:
            raise OSError("a seek before the start")
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._at)
        room = memoryview(buffer)[: max(0, self._length - self._at)]
        count = self._file.readinto(room)
        self._at += count
        return count


def find_index(folder: Path) -> tuple[str, bytes]:
    """The name and the content of the file that says what the checkpoint in ``folder`` holds."""
    for name in (MANIFEST, METADATA):
        if os.path.lexists(folder / name):
            return name, read_whole(folder, name)
    raise CheckpointError(
        f"there is no checkpoint at {folder}. Expected a folder with {MANIFEST}, or with "
        f"{METADATA} of torch.distributed.checkpoint. Give the path that was saved to."
    )


def read_index(folder: Path, name: str, content: bytes) -> dict[str, Saved]:
    """The entries of the checkpoint in ``folder``; all that is said of them is checked first."""
    if name == MANIFEST:
        return read_manifest(folder, content)
    from spmdx._checkpoint.format.metadata import read_metadata

    return read_metadata(folder, content)


def check_sound(folder: Path, name: str, chunk: Chunk) -> None:
    """Raise CheckpointError unless the chunk's bytes are those that were written."""
    path = folder / chunk.file
    sound = file_size(path) >= chunk.start + chunk.length
    if sound and chunk.crc is not None:
        sound = checksum(path, chunk.start, chunk.length, chunk.seed) == chunk.crc
    elif sound:  # the parts of a zip file have checksums
        sound = _is_sound_zip(path, chunk)
    if not sound:
        raise CheckpointError(
            f"{name} is damaged in {path}, bytes {chunk.start} to {chunk.start + chunk.length}. "
            f"Expected the bytes that were saved. {MEND}."
        )


def _is_sound_zip(path: Path, chunk: Chunk) -> bool:
    try:
        with open(path, "rb") as file:
            with zipfile.ZipFile(Slice(file, chunk.start, chunk.length)) as parts:
                return parts.testzip() is None
    except Exception:  # a damaged zip file fails in many ways
        return False


def read_chunk(folder: Path, name: str, chunk: Chunk) -> Any:
    """What the chunk holds. Only tensors, numbers, texts and containers are ever made."""
    path = folder / chunk.file
    try:
        with open(path, "rb") as file:
            part = Slice(file, chunk.start, chunk.length)
            require_small(part, chunk.length)
            return torch.load(cast(IO[bytes], part), map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch.load has no error of its own
        raise CheckpointError(
            f"{name} cannot be read from {path}: {str(error).split('. ')[0]}. Expected what "
            f"torch.save writes of tensors, numbers, texts and containers. {MEND}."
        ) from error


def require_small(part: io.IOBase, length: int) -> None:
    """Raise ValueError if what torch.load makes of the zip file could be larger than ``length``.

    Parts may be packed. Of what torch.load makes, bytearray alone takes a size for its argument:
    a number, or a tensor of one.
    """
    with zipfile.ZipFile(part) as parts:
        for held in parts.infolist():
            if held.compress_type != zipfile.ZIP_STORED or held.file_size > length:
                raise ValueError("its parts are packed")
            if held.filename.endswith(".pkl") and _has_sized_array(parts.read(held)):
                raise ValueError("it holds a bytearray of any size")
    part.seek(0)


def _has_sized_array(pickled: bytes) -> bool:
    if b"bytearray" not in pickled:
        return False
    steps = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(pickled)]
    has_array = any(
        name == "GLOBAL" and str(argument).endswith(" bytearray") for name, argument in steps
    )
    sizes = [argument for name, argument in steps if name.startswith(("BININT", "LONG"))]
    large = any(size > len(pickled) for size in sizes if type(size) is int)
    return has_array and (large or any(name == "BINPERSID" for name, _ in steps))


def read_tensor_chunk(folder: Path, name: str, saved: Saved, chunk: Chunk) -> torch.Tensor:
    data = read_chunk(folder, name, chunk)
    if not isinstance(data, torch.Tensor) or data.dtype != saved.dtype:
        found = data.dtype if isinstance(data, torch.Tensor) else type(data).__name__
    elif data.layout != torch.strided or not data.is_cpu:
        found = f"a tensor on {data.device} with layout {data.layout}"
    elif tuple(data.shape) != chunk.box.sizes:
        found = f"shape {tuple(data.shape)}"
    else:
        return data
    raise CheckpointError(
        f"{folder / chunk.file} has {found} for {name}. Expected {saved.dtype} of shape "
        f"{chunk.box.sizes}. {MEND}."
    )
