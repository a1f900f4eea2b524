# SPDX-License-Identifier: Apache-2.0
"""The folder of a checkpoint: it appears as a whole, or the one before it stays."""

import ctypes
import glob
import os
import secrets
import shutil
import time
import warnings
from pathlib import Path

from spmdx.checkpoint_manifest import MANIFEST, METADATA, SUFFIX
from spmdx.errors import CheckpointError

_BETWEEN_RENAMES = 1.0  # seconds: a save of another program that lives needs less
_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # renameat2(2)


def _previous(target: Path) -> Path:
    """Where the checkpoint that is being replaced waits between two renames."""
    return target.parent / f".{target.name}.previous"


def _unfinished(target: Path) -> list[Path]:
    return sorted(target.parent.glob(f".{glob.escape(target.name)}.saving-*"))


def mend(target: Path) -> None:
    """Undo what a save left that was killed while it put the new folder in place."""
    previous = _previous(target)
    if previous.is_dir() and not target.exists():
        time.sleep(_BETWEEN_RENAMES)
    if target.exists():
        shutil.rmtree(previous, ignore_errors=True)
    if target.exists() or not previous.is_dir():
        return
    os.rename(previous, target)
    warnings.warn(
        f"a save was killed just before it replaced {target}: the checkpoint before it is back",
        stacklevel=2,
    )


def notice(target: Path, then: str) -> list[Path]:
    """The folders of unfinished saves, and a warning about them that ends with ``then``."""
    found = _unfinished(target)
    for folder in found:
        warnings.warn(
            f"{folder} is left from a save to {target.name} that did not end: {then}", stacklevel=2
        )
    return found


def begin(target: Path) -> str:
    """Make the folder that is written into; gives its name. For one process."""
    mend(target)
    _require_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in notice(target, "it is removed"):
        shutil.rmtree(folder)
    folder = target.parent / f".{target.name}.saving-{secrets.token_hex(4)}"
    folder.mkdir()
    return folder.name


def _require_replaceable(target: Path) -> None:
    """Whatever lies at ``target`` will be removed: it must be a checkpoint and nothing else."""
    if not os.path.lexists(target):
        return
    own = (MANIFEST, METADATA)
    others = [target] if not target.is_dir() or target.is_symlink() else []
    others = others or [
        f for f in sorted(target.iterdir()) if f.name not in own and f.suffix != SUFFIX
    ]
    if others:
        raise CheckpointError(
            f"{others[0]} is no part of a checkpoint, and {target} would be replaced. Expected a "
            "new path, an empty folder or a checkpoint. Save to another path, or move it away."
        )


def commit(folder: Path, target: Path) -> None:
    """Put the written folder in place of what lies at ``target``. For one process."""
    _sync(folder)
    previous = _previous(target)
    if not target.exists():
        os.rename(folder, target)
    elif _swap(folder, target):
        os.rename(folder, previous)
    else:
        _replace(folder, target)
    _sync(target.parent)
    shutil.rmtree(previous, ignore_errors=True)  # a load may do it at the same time


def _swap(folder: Path, target: Path) -> bool:
    """Exchange two folders in one go, where the system can (Linux, most of its file systems)."""
    rename = getattr(_LIBC, "renameat2", None)
    if rename is None:
        return False
    paths = (_AT_FDCWD, os.fsencode(folder), _AT_FDCWD, os.fsencode(target))
    return rename(*paths, _RENAME_EXCHANGE) == 0


def _replace(folder: Path, target: Path) -> None:
    """In two steps: who is killed between them leaves it to :func:`mend`."""
    previous = _previous(target)
    os.rename(target, previous)
    try:
        os.rename(folder, target)
    except OSError:
        os.rename(previous, target)
        raise


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
