# SPDX-License-Identifier: Apache-2.0
"""Saving safetensors: one tensor at a time is put together and written."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from spmdx._base import logs
from spmdx._base.progress import progress
from spmdx._checkpoint.agree import agree_on_call, agree_on_tree
from spmdx._checkpoint.format.boxes import is_device_tensor, wait_for_steps
from spmdx._checkpoint.format.folder import absolute
from spmdx._checkpoint.safetensors.load import DTYPES, ENDING, INDEX, PATH, State, tensors_of
from spmdx._checkpoint.together import Exchange, channel, together
from spmdx._checkpoint.tree import flatten
from spmdx._world.processes import process_index
from spmdx.errors import CheckpointError, naming

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class _Output:
    """A file that keeps its first error instead of raising it.

    All processes put tensors together at the same time, so the one that writes must go on after an
    error.
    """

    def __init__(self, path: Path):
        self.error: OSError | None = None
        self._file = self._attempt(lambda: open(path, "wb"))

    def _attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work() if self.error is None else None
        except OSError as error:
            self.error = error
            return None

    def write(self, data: Any) -> None:
        self._attempt(lambda: self._file.write(data))

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._attempt(self._sync)
        if self._file is not None:
            try:
                self._file.close()  # writes what is left, even after an error
            except OSError as error:
                self.error = self.error or error


def save_safetensors(
    module_or_state: State,
    path: str | os.PathLike,
    *,
    max_shard_size: int | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a module or a dict of tensors as safetensors, which any tool reads.

    The format wants whole tensors: one at a time is put together. Every process calls it, process
    0 writes. A parameter of a module that has several names is written under the first.

    Args:
        module_or_state: a module, or tensors in a dict.
        path: a file that ends with ``.safetensors``, else a folder: it gets ``model.safetensors``,
            or several files and ``model.safetensors.index.json``.
        max_shard_size: bytes of tensors in one file of a folder; None: one file.
        metadata: texts for the header; ``format`` is ``"pt"``.

    Raises:
        CheckpointError: something is no tensor or has a dtype that safetensors lacks, or files
            cannot be written.

    Example:
        >>> import os, tempfile, torch, spmdx
        >>> layer = torch.nn.Linear(16, 16).to("spmdx")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spmdx.checkpoint.save_safetensors(layer, folder, max_shard_size=1000)
        ...     print(*sorted(os.listdir(folder)))
        model-00001-of-00002.safetensors model-00002-of-00002.safetensors
        model.safetensors.index.json

    Source: https://github.com/huggingface/safetensors
    """
    with naming("save_safetensors"), channel() as exchange:
        planned: list[tuple] = []
        size = f"max_shard_size={max_shard_size}"
        agree_on_call(exchange, "save_safetensors", lambda: f"{absolute(path, *PATH)}, {size}")
        agree_on_tree(exchange, lambda: flatten(tensors_of(module_or_state)[0]))
        orders = together(exchange, lambda: list(tensors_of(module_or_state)[0]))

        def plan() -> None:
            wait_for_steps()
            tensors, tied = tensors_of(module_or_state)
            tensors = {name: tensors[name] for name in orders[0] if name not in tied}
            for name, tensor in tensors.items():
                _require_known(name, tensor)
            planned.append((_split(tensors, max_shard_size), {**tied, **(metadata or {})}))

        together(exchange, plan)
        groups, notes = planned[0]
        began = time.monotonic()
        _write_files(groups, absolute(path, *PATH), {**notes, "format": "pt"}, exchange)
        logs.checkpoint.info(
            "saved %s: %d files, in %.3f s", path, len(groups), time.monotonic() - began
        )


def _require_known(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in _NAMES or tensor.layout != torch.strided or tensor.is_meta:
        raise CheckpointError(
            f"{name} is {tensor.dtype} on {tensor.device} with layout {tensor.layout}. Expected a "
            f"dense tensor with data of one of {', '.join(map(str, _NAMES))}. Convert it first."
        )


def _split(tensors: dict[str, torch.Tensor], most: int | None) -> list[dict[str, torch.Tensor]]:
    """Groups in order, each of at most ``most`` bytes where its tensors allow."""
    groups: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        size += _bytes(tensor)
        if most is not None and size > most and groups[-1]:
            groups.append({})
            size = _bytes(tensor)
        groups[-1][name] = tensor
    return groups


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _write_files(groups: list[dict], path: Path, notes: dict, exchange: Exchange) -> None:
    """Write all under other names, then put them in place: never a mixture of two saves."""
    single = path.suffix == ENDING
    if single and len(groups) > 1:
        raise CheckpointError(
            f"{path} is one file, but max_shard_size wants {len(groups)}. Expected a folder. Give "
            "one, or leave max_shard_size out."
        )
    folder = path.parent if single else path
    names = [path.name] if single else _file_names(len(groups))
    first = process_index() == 0
    together(exchange, lambda: folder.mkdir(parents=True, exist_ok=True) if first else None)
    errors = []
    total = sum(_bytes(tensor) for group in groups for tensor in group.values())
    with progress("saving", total) as advance:
        for name, group in zip(names, groups, strict=True):
            place = _hidden(folder, name) if first else None
            errors.append(_write_file(place, group, notes, advance))

    def commit() -> None:
        all_names = [*names, INDEX] if len(names) > 1 else names
        try:
            for error in filter(None, errors):
                raise error
            if INDEX in all_names:
                _write_index(_hidden(folder, INDEX), names, groups)
        except OSError:
            for name in all_names:
                _hidden(folder, name).unlink(missing_ok=True)
            raise
        for old in [] if single else _known_files(folder):
            old.unlink()
        for name in all_names:
            os.replace(_hidden(folder, name), folder / name)

    together(exchange, commit if first else lambda: None)


def _hidden(folder: Path, name: str) -> Path:
    return folder / f".{name}.saving"


def _file_names(count: int) -> list[str]:
    if count == 1:
        return [f"model{ENDING}"]
    return [f"model-{i + 1:05}-of-{count:05}{ENDING}" for i in range(count)]


def _known_files(folder: Path) -> Iterable[Path]:
    """The files that an earlier save wrote to the folder, the index first."""
    shards = folder.glob(f"model-?????-of-?????{ENDING}")
    named = [folder / INDEX, folder / f"model{ENDING}", *sorted(shards)]
    return [path for path in named if path.exists()]


def _write_file(
    path: Path | None, group: dict, notes: dict, advance: Callable[[int], None]
) -> OSError | None:
    """Write one file; without a path only take part in putting the tensors together."""
    names = sorted(group, key=lambda name: (-group[name].element_size(), name))  # aligns data
    output = None if path is None else _Output(path)
    if output:
        output.write(_header(names, group, notes))
    for name in names:
        if output or is_device_tensor(group[name]):
            data = group[name].detach().cpu().resolve_conj().resolve_neg().contiguous()
            if output:
                output.write(_raw(data))
            del data
        advance(_bytes(group[name]))
    if output:
        output.close()
    return None if output is None else output.error


def _raw(tensor: torch.Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _header(names: list[str], group: dict, notes: dict) -> bytes:
    entries: dict[str, Any] = {"__metadata__": notes}
    start = 0
    for name in names:
        tensor, end = group[name], start + _bytes(group[name])
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_index(path: Path, names: list[str], groups: list[dict]) -> None:
    weights = {name: file for file, group in zip(names, groups, strict=True) for name in group}
    total = sum(_bytes(tensor) for group in groups for tensor in group.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2)
    path.write_text(text + "\n")
