# SPDX-License-Identifier: Apache-2.0
"""Consistency: processes that load data for one program compare what they have."""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from spmdx._data.batches import Path, map_tensors, name_of_path
from spmdx._data.split import Split
from spmdx._world import processes
from spmdx.errors import CommError, ShardingError, located, naming

Rows = dict[Path, list[int]]  # for each tensor that comes in parts, the rows of every process


class Agreed:
    """An iterator over (batch, rows), where the batches of all processes fit together.

    Every process must come to the same exchanges, so what makes one necessary is the same in all:
    the first batch of an epoch, and every batch where parts may differ in size or number, or where
    processes hold the same part. A process that has no more batches goes on with parts of no rows
    until all have ended. The step that uses a tensor compares it where it is whole in all of them.

    Args:
        batches: of this process.
        split: from path and tensor to its :class:`Split`; None where every process has it whole.
        always: whether parts may differ in size or number.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        split: Callable[[Path, torch.Tensor], Split | None],
        always: bool,
    ):
        self._batches = batches
        self._split = split
        self._always = always
        self._count = 0
        self._last: Any = None

    def __iter__(self) -> "Agreed":
        return self

    def __next__(self) -> tuple[Any, Rows]:
        if self._count and not self._always:
            self._count += 1
            return next(self._batches), {}
        batch, mine = self._fetched()
        said = _exchange(mine)
        _raise_errors(said)
        if not any("tensors" in one for one in said):
            raise StopIteration
        with naming("device_loader"):
            _require_equal_ends(said)
            batch = self._empty() if "end" in mine else batch
            rows = self._compared(batch, said)
            self._last, self._count = batch, self._count + 1
            return batch, rows

    def _fetched(self) -> tuple[Any, dict[str, Any]]:
        """This process's batch, and what the others are told of it."""
        try:
            batch = next(self._batches)
            return batch, {"tensors": self._described(batch)}
        except StopIteration:
            return None, {"end": self._count}
        except Exception as error:
            _exchange({"error": f"{type(error).__name__}: {error}"})
            raise

    def _described(self, batch: Any) -> list[Any]:
        """Name, dtype, shape, whether it is whole; a checksum where others hold the same."""
        told: list[Any] = []

        def tell(path: Path, tensor: torch.Tensor) -> torch.Tensor:
            split = self._split(path, tensor)
            whole = split is None
            shared = not self._count if split is None else split.is_shared
            self._always = self._always or (shared and not whole)
            readable = tensor.device.type == "cpu" and tensor.layout == torch.strided
            summed = checksum(tensor) if readable and shared else None
            shape = list(tensor.shape)
            told.append([name_of_path(path), str(tensor.dtype), shape, whole, summed])
            return tensor

        map_tensors(tell, batch)
        return told

    def _empty(self) -> Any:
        """Parts of no rows, with the structure of the last batch."""
        return map_tensors(lambda path, tensor: tensor[:0], self._last)

    def _compared(self, batch: Any, said: list[dict[str, Any]]) -> Rows:
        """The rows of every process. Raises where the batches do not fit together."""
        splits: list[tuple[Path, Split | None]] = []

        def note(path: Path, tensor: torch.Tensor) -> torch.Tensor:
            splits.append((path, self._split(path, tensor)))
            return tensor

        map_tensors(note, batch)
        having = [p for p, one in enumerate(said) if "tensors" in one]
        first = said[having[0]]["tensors"]
        for process in having[1:]:
            _require_like(first, having[0], said[process]["tensors"], process)
        rows: Rows = {}
        for i, (path, split) in enumerate(splits):
            shapes = [one["tensors"][i][2] if "tensors" in one else [0] for one in said]
            sums = [one["tensors"][i][4] if "tensors" in one else None for one in said]
            part_of = [0] * len(said) if split is None else split.part_of
            _require_equal_replicas(name_of_path(path), shapes, sums, part_of)
            if split is not None:
                rows[path] = [shape[0] for shape in shapes]
        return rows


def checksum(tensor: torch.Tensor) -> int:
    """A checksum of the elements of a tensor on the CPU."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return zlib.crc32(flat.view(torch.uint8).numpy().data) if flat.numel() else 0


def _raise_errors(said: list[dict[str, Any]]) -> None:
    """Raise where the loader of another process has raised."""
    for process, one in enumerate(said):
        if "error" in one:
            message = (
                f"the loader of process {process} raised {one['error']}. Expected batches of every "
                "process. See the traceback of that process."
            )
            raise CommError(located("device_loader", message))


def _exchange(value: Any) -> list[Any]:
    return processes.exchange(value, "device_loader")


def _require_equal_ends(said: list[dict[str, Any]]) -> None:
    """Batches that ended can be followed by parts of no rows, where all tensors are parts."""
    ended = {process: one["end"] for process, one in enumerate(said) if "end" in one}
    whole = [t[0] for one in said for t in one.get("tensors", ()) if t[3]]
    for process, count in ended.items():
        if whole or not count:
            why = f"{whole[0]} is to be whole in every process" if whole else "others have some"
            raise ShardingError(
                f"process {process} has no more batches after {count}, and {why}. Expected as many "
                "batches in every process. Give every process as large a share of the data."
            )


def _require_like(first: list[Any], p: int, other: list[Any], q: int) -> None:
    """Whether these are the same tensors, but for their numbers of rows."""
    names, others = [t[0] for t in first], [t[0] for t in other]
    if names != others:
        lone = sorted(set(names) ^ set(others)) or names
        raise ShardingError(
            f"the batches of processes {p} and {q} differ: {', '.join(lone)} is in one of them. "
            "Expected the same keys in the same order. Mend collate_fn."
        )
    for (name, dtype, shape, whole, _), (_, dtype_q, shape_q, whole_q, _) in zip(
        first, other, strict=True
    ):
        free = 0 if whole or whole_q else 1
        but = " but for rows" if free else ""
        same = len(shape) == len(shape_q) and shape[free:] == shape_q[free:]
        if dtype != dtype_q or not same:
            raise ShardingError(
                f"{name} is {dtype} {tuple(shape)} in process {p} and {dtype_q} {tuple(shape_q)} "
                f"in process {q}. Expected the same{but}. Let collate_fn "
                "fill up to one length, or cut the tensor by rows with minibatch=True."
            )


def _require_equal_replicas(
    name: str, shapes: list[list[int]], sums: list[int | None], part_of: list[int]
) -> None:
    """Check that processes that hold the same part were given the same rows, or all none."""
    for process, part in enumerate(part_of):
        first = part_of.index(part)
        if (shapes[process], sums[process]) != (shapes[first], sums[first]):
            raise ShardingError(
                f"{name} differs between processes {first} and {process}, which hold the same "
                "rows. Expected equal batches there. Seed the sampler alike in all processes; for "
                "parts take a DistributedSampler with the numbers of spmdx.data.batch_shard."
            )
