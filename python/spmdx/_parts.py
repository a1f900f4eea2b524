# SPDX-License-Identifier: Apache-2.0
"""Parts of batches: which rows the processes hold, and tensors made of what each of them has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spmdx import _C, runtime
from spmdx.errors import ShardingError
from spmdx.mesh import Mesh
from spmdx.sharding import mark_sharding
from spmdx.spec import Sharding, to_handle


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
    def mine(self) -> int:
        """The part of this process."""
        return self.part_of[runtime.process_index()]


def processes_of(mesh: Mesh) -> list[int]:
    """For each position of ``mesh`` the process that has the device."""
    each = runtime.addressable_runtime_device_count()
    return [device // each for device in mesh.device_ids.tolist()]


def split_of(mesh: Mesh, spec: Sequence[Any]) -> Split:
    """Who holds which rows under ``spec``. Raises ShardingError where no equal parts do it."""
    chunk_at = _chunk_at(mesh, spec)
    held: list[set[int]] = [set() for _ in range(runtime.process_count())]
    for process, chunk in zip(processes_of(mesh), chunk_at, strict=True):
        held[process].add(chunk)
    parts = sorted({tuple(sorted(chunks)) for chunks in held})
    for process, chunks in enumerate(held):
        if not chunks:
            raise ShardingError(
                f"process {process} has no device of {mesh!r}. Expected one of every process, "
                "since each gives a part of the batch. Make the mesh larger, or start fewer "
                "processes."
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
    """``spec`` with None for the dims it does not mention."""
    return (*spec, *(None,) * (rank - len(spec)))


def sharding_of(mesh: Mesh, spec: Sequence[Any], shape: Sequence[int], name: str) -> Sharding:
    """The sharding of a tensor of this shape, which messages call ``name``."""
    sample = torch.empty(shape, device="meta")
    return Sharding(to_handle(padded(spec, len(shape)), mesh, sample, name))


def place_whole(tensor: torch.Tensor, mesh: Mesh, spec: Sequence[Any], name: str) -> torch.Tensor:
    """A CPU tensor that every process has, on the device; each uploads what its devices hold."""
    sharding = sharding_of(mesh, spec, tensor.shape, name)
    boxes = zip(sharding.boxes(tensor.shape), processes_of(mesh), strict=True)
    here = runtime.process_index()
    pieces = [tensor[box] for box, process in boxes if process == here]
    return mark_sharding(_joined(pieces, sharding, tensor.shape, here), mesh, sharding.spec)


def place_part(
    part: torch.Tensor,
    rows: Sequence[int],
    split: Split,
    mesh: Mesh,
    spec: Sequence[Any],
    name: str,
) -> torch.Tensor:
    """The parts of all processes as one tensor; none sees the rows of another.

    Args:
        part: what this process has: whole rows, on the CPU.
        rows: the number of rows of every process.
        split: who holds which rows under ``spec``.
        mesh: the devices.
        spec: a partition spec.
        name: what messages call the tensor.

    Returns:
        A tensor whose rows are those of the chunks in order. A part is cut into as many pieces as
        it has chunks, each as long as the longest has to be, the last ones shorter.
    """
    longest, lengths = _lengths(split, rows)
    # Pieces that lie otherwise than a tensor of so many rows does are filled up to equal lengths;
    # leaving the filling out again is part of the program, which moves what has to move.
    fits = lengths == _chunked(sum(lengths), len(lengths))
    count = sum(lengths) if fits else longest * len(lengths)
    shape = (count, *part.shape[1:])
    sharding = sharding_of(mesh, spec, shape, name)
    here = runtime.process_index()
    chunks = split.parts[split.mine]
    pieces = []
    placed = zip(sharding.boxes(shape), split.chunk_at, processes_of(mesh), strict=True)
    for box, chunk, process in placed:
        if process == here:
            first = chunks.index(chunk) * longest
            piece = part[(slice(first, first + lengths[chunk]), *box[1:])]
            pieces.append(piece if fits else _filled(piece, longest))
    whole = _joined(pieces, sharding, shape, here)
    if not fits:
        whole = _without_filling(whole, longest, lengths)
    return mark_sharding(whole, mesh, sharding.spec)


def _lengths(split: Split, rows: Sequence[int]) -> tuple[int, list[int]]:
    """The length of the longest piece, and of the piece of every chunk."""
    each = len(split.parts[0])
    longest = -(-max(rows) // each)
    lengths = [0] * (each * len(split.parts))
    for process, part in enumerate(split.part_of):
        for i, chunk in enumerate(split.parts[part]):
            lengths[chunk] = min(max(rows[process] - i * longest, 0), longest)
    return longest, lengths


def _chunked(count: int, chunks: int) -> list[int]:
    """The lengths that ``count`` rows are cut into."""
    longest = -(-count // chunks)
    return [min(max(count - i * longest, 0), longest) for i in range(chunks)]


def _filled(piece: torch.Tensor, length: int) -> torch.Tensor:
    filled = piece.new_zeros((length, *piece.shape[1:]))
    filled[: len(piece)] = piece
    return filled


def _without_filling(whole: torch.Tensor, longest: int, lengths: Sequence[int]) -> torch.Tensor:
    """The rows that are no filling; pieces that follow each other are taken at once."""
    runs: list[list[int]] = []
    for chunk, length in enumerate(lengths):
        start = chunk * longest
        if runs and runs[-1][1] == start:
            runs[-1][1] += length
        elif length:
            runs.append([start, start + length])
    with torch.no_grad():
        return torch.cat([whole[start:stop] for start, stop in runs])


def _joined(
    pieces: list[torch.Tensor], sharding: Sharding, shape: Sequence[int], process: int
) -> torch.Tensor:
    if not pieces:
        raise ShardingError(
            f"process {process} has no device of {sharding.mesh!r}. Expected one of every process "
            "that loads data. Make the mesh larger, or start fewer processes."
        )
    return _C.from_local(pieces, sharding._handle, list(shape))
