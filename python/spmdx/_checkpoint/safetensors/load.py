# SPDX-License-Identifier: Apache-2.0
"""Loading safetensors: each process reads the slices that its shards need."""

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from spmdx._base import logs
from spmdx._base.arguments import is_iterable
from spmdx._checkpoint.agree import ONE_PLACE, agree_on_call, agree_on_tree, require_alike
from spmdx._checkpoint.format.boxes import Box, Piece, wait_for_steps, whole
from spmdx._checkpoint.format.folder import absolute
from spmdx._checkpoint.format.manifest import Saved
from spmdx._checkpoint.format.schema import MEND, own_file, parsed, table
from spmdx._checkpoint.load import Filler, Unmatched, fill, match
from spmdx._checkpoint.together import channel, together
from spmdx._checkpoint.tree import flatten
from spmdx.errors import CheckpointError, naming

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
ENDING = ".safetensors"
INDEX = "model.safetensors.index.json"
PATH = ("model.safetensors", "a file or a folder")  # an example, and its kind
_MOST = 32 << 20  # bytes of an index or a header: enough for 200000 tensors

State = torch.nn.Module | Mapping[str, Any]
Paths = str | os.PathLike | Sequence[str | os.PathLike]


def tensors_of(state: State) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors by name; and the first name of a parameter, by each further name of it."""
    held = state.state_dict() if isinstance(state, torch.nn.Module) else state
    tensors = {name: entry.value for name, entry in flatten(held).entries.items()}
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):
            raise CheckpointError(
                f"{name} is a {type(value).__name__}. Expected tensors only, as safetensors has "
                "nothing else. Leave it out, or use spmdx.checkpoint.save."
            )
    first: dict[int, str] = {}
    tied = {}
    if isinstance(state, torch.nn.Module):
        for name, parameter in state.named_parameters(remove_duplicate=False):
            kept = first.setdefault(id(parameter), name)
            if kept != name and name in tensors:
                tied[name] = kept
    return tensors, tied


def load_safetensors(
    module_or_state: State, path_or_paths: Paths, *, strict: bool = True
) -> Unmatched:
    """Fill a module or a dict of tensors in place; each process reads the slices of its shards.

    Args:
        module_or_state: tensors keep their mesh and spec. A parameter of a module that has
            several names needs one of them in the files.
        path_or_paths: a file, several, a ``.index.json`` of Hugging Face, or a folder with one.
        strict: refuse names that only one side has.

    Returns:
        The names that were passed over; none if ``strict``.

    Raises:
        CheckpointError: a file is missing or damaged, or names, shapes or dtypes do not fit. The
            format has no checksums: damaged elements are not noticed.

    Example:
        >>> import tempfile, torch, spmdx
        >>> layer = torch.nn.Linear(16, 16).to("spmdx")
        >>> _ = spmdx.mark_sharding(layer.weight, spmdx.get_1d_mesh("data"), (None, "data"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spmdx.checkpoint.save_safetensors(layer, folder)
        ...     spmdx.checkpoint.load_safetensors(layer, folder)
        Unmatched(missing=[], unexpected=[])

    Source: https://github.com/huggingface/safetensors
    """
    with naming("load_safetensors"), channel() as exchange:
        found: list[tuple] = []
        several = _several(path_or_paths)
        agree_on_call(exchange, "load_safetensors", lambda: f"{_listed(several)}, strict={strict}")
        agree_on_tree(exchange, lambda: flatten(tensors_of(module_or_state)[0]))

        def check() -> str:
            wait_for_steps()
            tensors, tied = tensors_of(module_or_state)
            files = files_of(several)
            saved = describe(files)
            present = {tied.get(name, name) for name in saved}
            for name in [n for n in tensors if n not in saved and tied.get(n, n) in present]:
                del tensors[name]
            unmatched = match(flatten(tensors), saved, path_or_paths, strict)
            wanted = {name: tensors[name] for name in sorted(tensors) if name in saved}
            found.append((wanted, files, unmatched))
            return f"files with SHA-256 {digest(files, saved)}"

        require_alike(together(exchange, check), "finds", ONE_PLACE)
        tensors, files, unmatched = found[0]

        def filler(name: str) -> Filler:
            return _filler(name, files[name], whole(tensors[name].shape))

        began = time.monotonic()
        together(exchange, lambda: fill(tensors, filler))
        logs.checkpoint.info(
            "loaded %d tensors from %s in %.3f s",
            len(tensors),
            _listed(several),
            time.monotonic() - began,
        )
        return unmatched


def _several(paths: Paths) -> list[Any]:
    if isinstance(paths, str | bytes | os.PathLike) or not is_iterable(paths):
        return [paths]
    return list(paths)


def _listed(several: list[Any]) -> str:
    return ", ".join(str(absolute(path, *PATH)) for path in several)


def digest(files: dict[str, Path], saved: dict[str, Saved]) -> str:
    """A digest of the files' sizes and of what their headers say."""
    sizes = {str(path): path.stat().st_size for path in set(files.values())}
    told = sorted(sizes.items()), sorted((n, str(s), str(files[n])) for n, s in saved.items())
    return hashlib.sha256(repr(told).encode()).hexdigest()


def files_of(several: list[Any]) -> dict[str, Path]:
    """The file of every tensor."""
    files: dict[str, Path] = {}
    for path in map(Path, several):
        if path.is_dir():
            found = sorted(path.glob(f"*{ENDING}"))
            within = [path / INDEX] if (path / INDEX).exists() else found
            if not within:
                raise CheckpointError(
                    f"there is no file that ends with {ENDING} in {path}. Expected one, or "
                    f"{INDEX}. Give the folder of the weights."
                )
        else:
            within = [path]
        for file in within:
            files.update(_index(file) if file.suffix == ".json" else _keys(file))
    return files


def _index(path: Path) -> dict[str, Path]:
    try:
        if path.stat().st_size > _MOST:
            raise ValueError(f"it has more than {_MOST} bytes")
        weights = table(table(parsed(path.read_bytes())).get("weight_map"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is no index of safetensors files: {error}. Expected JSON with a weight_map. "
            f"{MEND}."
        ) from error
    return {name: path.parent / own_file(path.parent, file) for name, file in weights.items()}


def opened(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        with open(path, "rb") as file:
            if int.from_bytes(file.read(8), "little") > _MOST:
                raise SafetensorError(f"its header has more than {_MOST} bytes")
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is damaged or no safetensors file: {error}. Expected one. {MEND}."
        ) from error


def _keys(path: Path) -> dict[str, Path]:
    with opened(path) as file:
        return dict.fromkeys(file.keys(), path)


def describe(files: dict[str, Path]) -> dict[str, Saved]:
    """What the headers of the files say of their tensors."""
    saved = {}
    for path in sorted(set(files.values())):
        with opened(path) as file:
            present = set(file.keys())
            for name in (name for name, place in files.items() if place == path):
                if name not in present:
                    raise CheckpointError(
                        f"{path} lacks {name}. Expected it there, as the index says. {MEND}."
                    )
                part = file.get_slice(name)
                dtype = DTYPES.get(part.get_dtype())
                if dtype is None:
                    raise CheckpointError(
                        f"{name} in {path} has dtype {part.get_dtype()}. Expected one of "
                        f"{', '.join(DTYPES)}. Convert the file."
                    )
                saved[name] = Saved((name,), dtype, tuple(part.get_shape()), ())
    return saved


def _filler(name: str, path: Path, everything: Box) -> Filler:
    def fill_pieces(pieces: list[Piece]) -> None:
        with opened(path) as file:
            for box, target in pieces:
                if not box.numel:
                    continue
                if box.sizes:
                    data = file.get_slice(name)[box.inside(everything)]
                else:
                    data = file.get_tensor(name)
                target.copy_(data)
                del data

    return fill_pieces
