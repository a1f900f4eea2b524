# SPDX-License-Identifier: Apache-2.0
"""Parts: tensors on the device that are made of what each process has."""

from collections.abc import Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.sharding import mark_sharding
from spmdx._annotate.spec import Sharding
from spmdx._data.split import Split, processes_of, sharding_of
from spmdx._world import processes


def place_whole(tensor: torch.Tensor, mesh: Mesh, spec: Sequence[Any], name: str) -> torch.Tensor:
    """A CPU tensor that every process has whole, put on the device: each uploads its devices' part.

    The step that uses it first compares what the processes have.
    """
    sharding = sharding_of(mesh, spec, tensor.shape, name)
    boxes = zip(sharding.boxes(tensor.shape), processes_of(mesh), strict=True)
    here = processes.process_index()
    pieces = [tensor[box] for box, process in boxes if process == here]
    digest = _C.digest(tensor) if processes.process_count() > 1 else None
    joined = _joined(pieces, sharding, tensor.shape, tensor.dtype, digest)
    return mark_sharding(joined, mesh, sharding.spec)


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
        it has chunks, in order.
    """
    counts = [rows[split.part_of.index(i)] for i in range(len(split.parts))]
    shape = (sum(counts), *part.shape[1:])
    lengths = _held(split, sharding_of(mesh, spec, shape, name), shape)
    fits = all(sum(lengths[c] for c in p) == n for p, n in zip(split.parts, counts, strict=True))
    # Where a part has other rows than its devices hold, all parts are filled up to equal lengths.
    # The program leaves the filling out again, and the planner moves the rows that have to move.
    longest = 0
    if not fits:
        longest, lengths = _cut(split, counts)
        shape = (longest * len(lengths), *part.shape[1:])
    sharding = sharding_of(mesh, spec, shape, name)
    mine = split.parts[split.mine]
    own = dict(zip(mine, part.split([lengths[chunk] for chunk in mine]), strict=True))
    here = processes.process_index()
    placed = zip(sharding.boxes(shape), split.chunk_at, processes_of(mesh), strict=True)
    pieces = [
        _filled(own[chunk], longest)[(slice(None), *box[1:])]
        for box, chunk, process in placed
        if process == here
    ]
    whole = _joined(pieces, sharding, shape, part.dtype)
    if not fits:
        whole = _without_filling(whole, longest, lengths)
    return mark_sharding(whole, mesh, sharding.spec)


def _held(split: Split, sharding: Sharding, shape: Sequence[int]) -> list[int]:
    """For each chunk, how many rows of a tensor its devices hold."""
    boxes = zip(split.chunk_at, sharding.boxes(shape), strict=True)
    held = {chunk: box[0].stop - box[0].start for chunk, box in boxes}
    return [held[chunk] for chunk in range(len(held))]


def _cut(split: Split, counts: Sequence[int]) -> tuple[int, list[int]]:
    """The length of the longest piece, and of the piece of every chunk, where parts are cut."""
    each = len(split.parts[0])
    longest = -(-max(counts) // each)
    lengths = [0] * (each * len(split.parts))
    for chunks, count in zip(split.parts, counts, strict=True):
        for i, chunk in enumerate(chunks):
            lengths[chunk] = min(max(count - i * longest, 0), longest)
    return longest, lengths


def _filled(piece: torch.Tensor, length: int) -> torch.Tensor:
    """``piece`` with rows of zeros up to ``length``."""
    if len(piece) >= length:
        return piece
    filled = piece.new_zeros((length, *piece.shape[1:]))
    filled[: len(piece)] = piece
    return filled


def _without_filling(whole: torch.Tensor, longest: int, lengths: Sequence[int]) -> torch.Tensor:
    """The rows without the filling; pieces that follow each other are taken at once."""
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
    pieces: list[torch.Tensor],
    sharding: Sharding,
    shape: Sequence[int],
    dtype: torch.dtype,
    digest: int | None = None,
) -> torch.Tensor:
    """A tensor of the pieces of all processes; a process without a device has no pieces.

    With ``digest``, all processes must have the same one when a step uses the tensor.
    """
    return _C.from_local(pieces, sharding._handle, list(shape), dtype, digest=digest)
