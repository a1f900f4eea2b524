# SPDX-License-Identifier: Apache-2.0
"""Split: which process holds which rows of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh
from spmdx._annotate.spec import Sharding, expanded, to_handle
from spmdx._world import devices, processes
from spmdx.errors import ShardingError


@dataclass(frozen=True)
class Split:
    """How the rows (dim 0) of a batch are spread over processes.

    Attributes:
        chunk_at: for each position of the mesh the chunk of rows it holds.
        parts: the chunks of each part, in order; every part has as many.
        part_of: for each process the part it holds. Processes that hold the same rows have one.
    """

    chunk_at: list[int]
    parts: list[tuple[int, ...]]
    part_of: list[int]

    @property
    def is_shared(self) -> bool:
        """Whether some processes hold the same part."""
        return len(self.parts) < len(self.part_of)

    @property
    def mine(self) -> int:
        """The part of this process."""
        return self.part_of[processes.process_index()]


def processes_of(mesh: Mesh) -> list[int]:
    """For each position of ``mesh`` the process that has the device."""
    each = devices.own_count()
    return [device // each for device in mesh.device_ids.tolist()]


def split_of(mesh: Mesh, spec: Sequence[Any]) -> Split:
    """Which process holds which rows. Raises ShardingError where ``spec`` gives no equal parts."""
    chunk_at = _chunk_at(mesh, spec)
    held: list[set[int]] = [set() for _ in range(processes.process_count())]
    for process, chunk in zip(processes_of(mesh), chunk_at, strict=True):
        held[process].add(chunk)
    parts = sorted({tuple(sorted(chunks)) for chunks in held})
    if set() in held:
        raise ShardingError(
            f"process {held.index(set())} has no device of {mesh!r}. Expected one of every "
            "process, since each gives a part of the batch. Make the mesh larger, or set "
            "minibatch=False."
        )
    if len({len(part) for part in parts}) > 1 or sum(map(len, parts)) > len(set(chunk_at)):
        shown = ", ".join(f"process {p}: {sorted(chunks)}" for p, chunks in enumerate(held))
        raise ShardingError(
            f"no equal parts of a batch lie on {mesh!r} as {tuple(spec)!r} says: of "
            f"{len(set(chunk_at))} chunks of rows the processes hold {shown}. Expected processes "
            "with the same chunks, or as many others. Give the mesh the devices of a process "
            "beside each other, or set minibatch=False."
        )
    return Split(chunk_at, parts, [parts.index(tuple(sorted(chunks))) for chunks in held])


def _chunk_at(mesh: Mesh, spec: Sequence[Any]) -> list[int]:
    shape = (mesh.size(),) * max(1, len(spec))  # every number of chunks divides it
    starts = [box[0].start for box in sharding_of(mesh, spec, shape, "batch").boxes(shape)]
    return [sorted(set(starts)).index(start) for start in starts]


def padded(spec: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """``spec`` with None for the dims it does not mention, and for those of its ellipsis."""
    entries = expanded(spec, rank, "the batch")
    return (*entries, *(None,) * (rank - len(entries)))


def sharding_of(mesh: Mesh, spec: Sequence[Any], shape: Sequence[int], name: str) -> Sharding:
    """The sharding of a tensor of this shape, which messages call ``name``."""
    sample = torch.empty(shape, device="meta")
    return Sharding(to_handle(padded(spec, len(shape)), mesh, sample, name))
