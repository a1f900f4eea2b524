# SPDX-License-Identifier: Apache-2.0
"""What users say of a batch: a ShardingSpec for its tensors, and what follows for each of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._annotate.sharding import mark_sharding
from spmdx._annotate.spec import Sharding, pair_of
from spmdx._base.own_devices import NAMES
from spmdx._data.batches import Path, entry_for, name_of_path
from spmdx._data.parts import place_part, place_whole
from spmdx._data.split import Split, padded, split_of
from spmdx._device.device import NAME
from spmdx._world import processes
from spmdx.errors import ShardingError, naming


@dataclass(frozen=True)
class ShardingSpec:
    """How tensors of a batch lie on a mesh.

    Attributes:
        mesh: the devices; None means the global mesh. A :class:`spmdx.Sharding` is mesh and spec.
        partition_spec: entries for the first dims of a tensor; the dims after them are not cut.
            Entries behind a ``...`` are for its last dims.
        minibatch: the loader of each process gives its own part of the rows (dim 0) of the global
            batch, not all of it.

    Raises:
        ShardingError: the spec does not fit the mesh.

    Example:
        >>> import spmdx
        >>> spmdx.data.ShardingSpec(spmdx.get_1d_mesh("data"), ("data",))
        ShardingSpec(mesh=Mesh(data=8), partition_spec=PartitionSpec('data'), minibatch=False)

    Source: the names are PyTorch/XLA's.
    """

    mesh: Mesh | Sharding | None = None
    partition_spec: Sequence[Any] = ()
    minibatch: bool = False

    def __post_init__(self) -> None:
        with naming("ShardingSpec"):
            given, spec = pair_of(self.mesh, self.partition_spec)
            mesh = require_mesh(given)
            checked = Sharding(mesh, spec).spec
            if self.minibatch and checked and checked[0] is ... and len(checked) > 1:
                raise ShardingError(
                    f"the partition spec is {checked!r}, with minibatch=True. Expected an entry "
                    "for the rows, dim 0, first. Write ('data', ...)."
                )
        object.__setattr__(self, "mesh", mesh)
        object.__setattr__(self, "partition_spec", checked)


class Placement:
    """Where the tensors of a batch go.

    Args:
        mesh: where tensors without a spec lie whole; None means the mesh of the first spec.
        entries: a spec, None, or nested dicts of them.

    Raises:
        ShardingError: something else is among the entries.
    """

    def __init__(self, mesh: Mesh | None, entries: Any):
        specs = list(_specs(entries))
        mesh = mesh or next((require_mesh(spec.mesh) for spec in specs), None)
        self._default = None if mesh is None else ShardingSpec(mesh, ())
        self._entries = entries
        self._splits: dict[ShardingSpec, Split] = {}
        self.in_parts = any(spec.minibatch for spec in specs)

    def split(self, path: Path, tensor: torch.Tensor) -> Split | None:
        """Which process has which rows; None where every process has all rows."""
        spec = self._spec(path)
        if spec is None or not spec.minibatch or not tensor.dim() or tensor.device.type in NAMES:
            return None
        if spec not in self._splits:
            self._splits[spec] = split_of(require_mesh(spec.mesh), spec.partition_spec)
        return self._splits[spec]

    def parts(self) -> list[list[int]]:
        """For each tensor of which this process loads a part: which part, of how many."""
        specs = [spec for spec in _specs(self._entries) if spec.minibatch]
        splits = [
            split_of(require_mesh(spec.mesh), spec.partition_spec) for spec in dict.fromkeys(specs)
        ]
        return [[split.mine, len(split.parts)] for split in splits]

    def place(self, path: Path, tensor: torch.Tensor, rows: Sequence[int] | None) -> torch.Tensor:
        """The tensor of all processes on the device.

        Args:
            path: the keys that lead to it.
            tensor: what this process has of it.
            rows: the rows that each process has of it; None: as many as this process has.

        Returns:
            A tensor on device "spmdx", annotated unless there is no mesh.
        """
        # All that touches the device happens here, in the thread of the loop. The order in which
        # tensors are made is part of a plan. Tensors made in another thread would come in between
        # by chance: plans would not be found again, and would differ between processes.
        # Steps run behind the loop's back, so this still goes on while the last one runs.
        spec = self._spec(path)
        if spec is None:
            return tensor.to(NAME)
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            placed = tensor.to(NAME)
            return mark_sharding(placed, spec.mesh, padded(spec.partition_spec, placed.dim()))
        tensor = tensor.detach().resolve_conj().resolve_neg()
        name, mesh = name_of_path(path), require_mesh(spec.mesh)
        split = self.split(path, tensor)
        if split is None or processes.process_count() == 1:
            return place_whole(tensor, mesh, spec.partition_spec, name)
        rows = rows or [len(tensor)] * processes.process_count()
        return place_part(tensor, rows, split, mesh, spec.partition_spec, name)

    def _spec(self, path: Path) -> ShardingSpec | None:
        return entry_for(self._entries, path) or self._default


def _specs(entries: Any) -> Iterator[ShardingSpec]:
    """All the specs in nested dicts."""
    if isinstance(entries, Mapping):
        for entry in entries.values():
            yield from _specs(entry)
    elif isinstance(entries, ShardingSpec):
        yield entries
    elif entries is not None:
        raise ShardingError(
            f"input_sharding has {entries!r}. Expected a ShardingSpec, a dict of them by key, or "
            "None. Write spmdx.data.ShardingSpec(mesh, ('data',))."
        )
