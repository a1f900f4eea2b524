# SPDX-License-Identifier: Apache-2.0
"""A folder in which what was decided for programs outlives the process."""

import contextlib
import hashlib
import os
import pathlib
import warnings
from collections.abc import Mapping

import spmdx._C as _C
from spmdx._version import __version__

MOST = 4096  # programs; of more, the older half is thrown away


def version() -> str:
    """Of what decides; one release has several of them in the making."""
    code = hashlib.sha256(pathlib.Path(_C.__file__).read_bytes()).hexdigest()
    return f"{__version__} {code}"


def throw_away_oldest(folder: pathlib.Path) -> None:
    """Where there are too many files; other processes may throw away the same."""
    files = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was moved to its name, or thrown away
            files.append((path.stat().st_mtime, path))
    for _, path in sorted(files)[: len(files) - MOST // 2 if len(files) > MOST else 0]:
        path.unlink(missing_ok=True)


def folder_of_plans(environment: Mapping[str, str] | None = None) -> str:
    """The folder that ``SPMDX_CACHE`` has for plans; empty where it is not set.

    Args:
        environment: names and values; None means ``os.environ``.

    Example:
        >>> folder_of_plans({})
        ''
    """
    told = (os.environ if environment is None else environment).get("SPMDX_CACHE")
    if not told:
        return ""
    folder = pathlib.Path(told).absolute() / "plans"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        throw_away_oldest(folder)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} cannot be written to")
    except OSError as error:
        warnings.warn(
            f"SPMDX_CACHE is {told!r}, where plans cannot be kept: {error}. Expected a folder that "
            "this process may write to. Plans are made anew in each process.",
            UserWarning,
            stacklevel=2,
        )
        return ""
    return str(folder)
