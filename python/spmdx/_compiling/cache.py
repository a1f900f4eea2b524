# SPDX-License-Identifier: Apache-2.0
"""What compilers made, kept on disk: a folder for each segment, compiler and version."""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator

import torch

import spmdx._C as _C
from spmdx._segments.compiler import Compiler
from spmdx._segments.segment import Segment
from spmdx._version import __version__

_MANIFEST = "manifest.json"  # hashes of the files, written last


def root() -> pathlib.Path:
    """Where kernels are kept: ``SPMDX_CACHE``, or a folder of the user's caches."""
    told = os.environ.get("SPMDX_CACHE")
    if told:
        return pathlib.Path(told)
    caches = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(caches) / "spmdx"


def key_of(compiler: Compiler, segment: Segment) -> str:
    """Equal where a kernel may be used again."""
    versions = __version__, _code(), torch.__version__, compiler.version()
    made_by = type(compiler)
    parts = [compiler.name, made_by.__module__, made_by.__qualname__, *versions, segment.text]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@functools.cache
def _code() -> str:
    """Of what writes segments for compilers, which one version has several of in the making."""
    package = pathlib.Path(__file__).resolve().parents[1]
    written = [*package.glob("_segments/**/*.py"), *package.glob("_targets/**/*.py")]
    digest = hashlib.sha256()
    for path in sorted(written) + [pathlib.Path(_C.__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def folder_of(compiler: Compiler, segment: Segment) -> pathlib.Path:
    """Where the kernel is kept, if it is."""
    name = re.sub(r"[^\w-]+", "_", compiler.name)
    return root() / "segments" / name / key_of(compiler, segment)


def is_whole(folder: pathlib.Path) -> bool:
    """Whether a kernel is kept there as it was written; what is damaged is thrown away."""
    if not folder.exists():
        return False
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        whole = manifest == _hashes(folder)
    except (OSError, ValueError):
        whole = False
    if not whole:
        throw_away(folder)
    return whole


def throw_away(folder: pathlib.Path) -> None:
    """Remove what is kept there; another process may do so as well."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """An empty folder to write to, which takes its place when that has gone well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as made:
        draft = pathlib.Path(made) / "draft"
        draft.mkdir()
        yield draft
        (draft / _MANIFEST).write_text(json.dumps(_hashes(draft)))
        with contextlib.suppress(FileExistsError, OSError):  # another process was faster
            draft.rename(folder)


def _hashes(folder: pathlib.Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
