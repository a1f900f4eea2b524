# SPDX-License-Identifier: Apache-2.0
"""One mesh for all tensors: what was written for others is said on it, and it is split as needed.

In XLA a sharding is a grid of devices, so programs mix meshes. A step of spmdx has one mesh. So the
mesh of the first tensor is the home of all: a grid is written as a spec of the home's axes. Where
that cannot be, axes of the home are split, and tensors that are alive are annotated anew.
"""

import functools
import itertools
import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from spmdx import mark_step
from spmdx._annotate import sharding
from spmdx._annotate.mesh import Mesh
from spmdx._base.entries import entry_of
from spmdx._xla import op_sharding
from spmdx._xla.op_sharding import OpSharding, ShardingType, tile_of

_home: list[Mesh | None] = [None]
_annotated: dict[int, weakref.ref] = {}  # by their ids, tensors that lie on the home


def annotate(tensor: torch.Tensor, wanted: OpSharding) -> torch.Tensor:
    """Annotates a tensor of the device on the home mesh.

    Args:
        tensor: of the device.
        wanted: how it is to lie.

    Returns:
        What ``spmdx.mark_sharding`` gives.
    """
    mesh, spec = lying(wanted, tensor.dim())
    marked = sharding.mark_sharding(tensor, mesh, spec)
    note(tensor)
    return marked


def note(tensor: torch.Tensor) -> None:
    """Remembers that a tensor lies on the home, as long as it is alive."""
    key = id(tensor)
    _annotated[key] = weakref.ref(tensor, lambda _: _annotated.pop(key, None))


def lying(wanted: OpSharding, rank: int) -> tuple[Mesh, tuple]:
    """The home mesh, made finer if need be, and the spec on it that says the same as ``wanted``."""
    mesh, spec = wanted.mesh_and_spec(rank)
    home = _home[0]
    if home == mesh:
        return mesh, spec
    if home is None or not _annotated:
        if home is not None:
            mark_step()  # its ops may be annotated for the home that was
        _home[0] = mesh
        return mesh, spec
    if wanted.kind == ShardingType.REPLICATED:
        return home, (None,) * rank
    found = _spec(home, wanted.tile, rank)
    if found is not None:
        return home, found
    finer = next((m for m in _splits(home) if _spec(m, mesh.get_logical_mesh(), mesh.ndim)), None)
    if finer is None:
        return mesh, spec  # two meshes that are not of one kind: the step says so
    _move(finer)
    return finer, _spec(finer, wanted.tile, rank) or spec


def _move(finer: Mesh) -> None:
    """Ends the step, and annotates all that is alive on a finer mesh."""
    mark_step()
    alive = [tensor for ref in list(_annotated.values()) if (tensor := ref()) is not None]
    _home[0] = finer
    for tensor in alive:
        known = sharding.annotation_of(tensor)
        if known is None:
            continue
        said = op_sharding.from_sharding(known)
        spec = (None,) * tensor.dim()
        if said.kind != ShardingType.REPLICATED:
            spec = _spec(finer, said.tile, tensor.dim()) or tuple(known.spec)
        sharding.mark_sharding(tensor, finer, spec)


def _spec(mesh: Mesh, tile: np.ndarray, rank: int) -> tuple | None:
    """The spec on ``mesh`` that makes this grid; None if there is none."""
    text = ",".join(map(str, tile.flat))
    axes = _axes(mesh.get_logical_mesh().tobytes(), mesh.mesh_shape, text, tile.shape, rank)
    if axes is None:
        return None
    names = mesh.axis_names
    return tuple(entry_of([names[axis] for axis in entry]) for entry in axes)


@functools.lru_cache(1024)
def _axes(
    logical: bytes, shape: tuple[int, ...], ids: str, tile_shape: tuple[int, ...], rank: int
) -> tuple[tuple[int, ...], ...] | None:
    mesh = np.frombuffer(logical, dtype=np.int64).reshape(shape)
    wanted = np.array(ids.split(","), dtype=np.int64).reshape(tile_shape)
    usable = [axis for axis, size in enumerate(shape) if size > 1]
    for axes in _choices(tile_shape[:rank], usable, shape):
        made, _ = tile_of(mesh, axes)
        if made.size == wanted.size and _same(made, wanted, rank):
            return tuple(axes)
    return None


def _same(made: np.ndarray, wanted: np.ndarray, rank: int) -> bool:
    """Whether they are one grid; in which order replicas come does not matter."""
    sizes = (*wanted.shape[:rank], -1)
    ordered = [np.sort(grid.reshape(sizes), axis=-1) for grid in (made, wanted)]
    return bool((ordered[0] == ordered[1]).all())


def _choices(
    parts: Sequence[int], usable: Sequence[int], shape: Sequence[int]
) -> Iterator[list[tuple[int, ...]]]:
    """For each dim axes that make so many parts, in every order."""
    if not parts:
        yield []
        return
    for count in range(len(usable) + 1):
        for entry in itertools.permutations(usable, count):
            if math.prod(shape[axis] for axis in entry) == parts[0]:
                rest = [axis for axis in usable if axis not in entry]
                for others in _choices(parts[1:], rest, shape):
                    yield [entry, *others]


def _splits(mesh: Mesh) -> Iterator[Mesh]:
    """Meshes of the same devices in the same order, with axes split; those of few axes first."""
    options = [list(_factorings(size)) for size in mesh.mesh_shape]
    chosen = sorted(itertools.islice(itertools.product(*options), 4096), key=_length)
    for factors in chosen:
        sizes: list[int] = []
        names: list[Any] = []
        for name, entry in zip(mesh.axis_names, factors, strict=True):
            sizes += entry
            names += [name] if len(entry) == 1 else [f"{name}.{i}" for i in range(len(entry))]
        yield Mesh(mesh.device_ids.tolist(), tuple(sizes), tuple(names))


def _length(factors: Sequence[Sequence[int]]) -> int:
    return sum(map(len, factors))


def _factorings(size: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a size as a product of factors above 1, in order."""
    yield (size,)
    for first in range(2, size // 2 + 1):
        if size % first == 0:
            for rest in _factorings(size // first):
                yield (first, *rest)
