# SPDX-License-Identifier: Apache-2.0
"""The folder of a checkpoint: it appears as a whole, or the one before it stays."""

import contextlib
import ctypes
import glob
import os
import secrets
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

from spmdx._base.arguments import require_path
from spmdx._checkpoint.format.manifest import MANIFEST, METADATA, SUFFIX
from spmdx._world.processes import process_index
from spmdx.errors import CheckpointError

MARK = "spmdx.saving"  # in a folder that a save has made: its token, which its name ends with
_BETWEEN_RENAMES = 1.0  # seconds: a running save of another program needs less
_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # renameat2(2)


def _token(folder: Path) -> str:
    return folder.name.rpartition("-")[2]


def _previous(target: Path, token: str) -> Path:
    """Where the old checkpoint lies between two renames."""
    return target.parent / f".{target.name}.previous-{token}"


def _marked(folder: Path) -> str:
    """The token of the save that made ``folder``, if one did; names alone prove nothing."""
    try:
        if folder.is_symlink() or (folder / MARK).is_symlink():
            return ""
        with open(folder / MARK, encoding="ascii") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return ""


def _unfinished(target: Path) -> list[Path]:
    """The folders that saves to ``target`` have made and left."""
    found = sorted(target.parent.glob(f".{glob.escape(target.name)}.saving-*"))
    return [folder for folder in found if _marked(folder) == _token(folder)]


def mend(target: Path) -> None:
    """Repair what a save left behind that was killed while it put the new folder in place."""
    if _set_aside(target) is not None:
        time.sleep(_BETWEEN_RENAMES)
    if previous := _set_aside(target):
        os.rename(previous, target)
        warnings.warn(
            f"a save was killed just before it replaced {target}: the checkpoint before it is back",
            stacklevel=2,
        )
    if token := _marked(target):
        _clear(target, token)


def _set_aside(target: Path) -> Path | None:
    """The checkpoint of ``target`` that a save has moved away, if there is none in its place."""
    if os.path.lexists(target):
        return None
    waiting = (_previous(target, _token(folder)) for folder in _unfinished(target))
    return next((folder for folder in waiting if folder.is_dir()), None)


def _clear(target: Path, token: str) -> None:
    """Remove the old checkpoint, and then its mark. Other processes may do the same meanwhile."""
    old = _previous(target, token), target.parent / f".{target.name}.saving-{token}"
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    if not any(folder.exists() for folder in old):
        (target / MARK).unlink(missing_ok=True)


def notice(target: Path, then: str) -> list[Path]:
    """The folders of unfinished saves; warns about them, in a text that ends with ``then``."""
    found = _unfinished(target)
    for folder in found:
        warnings.warn(
            f"{folder} is left from a save to {target.name} that did not end: {then}", stacklevel=2
        )
    return found


def absolute(path: Any, example: str = "runs/step-100", kind: str = "a folder") -> Path:
    """The absolute path; raises CheckpointError unless it is that of ``kind``, as ``example``."""
    require_path(path, example, kind, CheckpointError)
    return Path(os.path.abspath(path))


def begin(target: Path) -> str:
    """Make the folder that is written into; gives its name. For one process."""
    mend(target)
    _require_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in notice(target, "it is removed"):
        shutil.rmtree(folder)
    folder = target.parent / f".{target.name}.saving-{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        (folder / MARK).write_text(_token(folder), encoding="ascii")
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder.name


def require_seen(folder: Path) -> None:
    """Raise CheckpointError unless this process sees the folder that process 0 has made."""
    if _marked(folder) != _token(folder):
        raise CheckpointError(
            f"process {process_index()} does not see {folder}, which process 0 has made. Expected "
            "a path on a file system that all processes share. Mount it at the same place."
        )


def _require_replaceable(target: Path) -> None:
    """Whatever lies at ``target`` will be removed: it must be a checkpoint and nothing else."""
    if not os.path.lexists(target):
        return
    others = [target] if not target.is_dir() or target.is_symlink() else []
    others = others or [f for f in sorted(target.iterdir()) if not _is_part(f)]
    if others:
        raise CheckpointError(
            f"{others[0]} is no part of a checkpoint, and {target} would be replaced. Expected a "
            "new path, an empty folder or a checkpoint. Save to another path, or move it away."
        )


def _is_part(file: Path) -> bool:
    own = file.name in (MANIFEST, METADATA, MARK) or file.suffix == SUFFIX
    return own and (file.is_symlink() or not file.is_dir())


def commit(folder: Path, target: Path) -> None:
    """Put the written folder in place of what lies at ``target``. For one process.

    The mark moves along: until the old folder is removed, it proves which save has moved it.
    """
    _sync(folder)
    token = _token(folder)
    if not target.exists():
        os.rename(folder, target)
    elif _swap(folder, target):
        with contextlib.suppress(FileNotFoundError):  # a load may have removed it by now
            os.rename(folder, _previous(target, token))
    else:
        _replace(folder, target)
    _sync(target.parent)
    _clear(target, token)


def _swap(folder: Path, target: Path) -> bool:
    """Exchange two folders in one go, where the system can (Linux, most of its file systems)."""
    rename = getattr(_LIBC, "renameat2", None)
    if rename is None:
        return False
    paths = (_AT_FDCWD, os.fsencode(folder), _AT_FDCWD, os.fsencode(target))
    return rename(*paths, _RENAME_EXCHANGE) == 0


def _replace(folder: Path, target: Path) -> None:
    """In two steps: after a kill between them, :func:`mend` does the rest."""
    previous = _previous(target, _token(folder))
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
