# SPDX-License-Identifier: Apache-2.0
"""ShardedTensor: an annotated tensor, seen as the pieces that the devices hold."""

from collections.abc import Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate import copies
from spmdx._annotate.annotation import annotate, handle_for, sharding_of
from spmdx._annotate.classes import plain_class, taken_by
from spmdx._annotate.dtensor import from_dtensor, placed_on, to_dtensor
from spmdx._annotate.global_mesh import get_global_mesh
from spmdx._annotate.local_shards import (
    LocalShard,
    all_pieces,
    check_shapes,
    global_shape,
    pieces_of,
    shapes_of,
)
from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._annotate.spec import PartitionSpec, Sharding, pair_of, to_handle
from spmdx._world.all_or_none import all_or_none
from spmdx.errors import ShardingError, naming


@taken_by(torch.Tensor)
class ShardedTensor(torch.Tensor):
    """A ``torch.Tensor`` on device "spmdx" that :func:`spmdx.mark_sharding` has annotated.

    It is the global tensor: code that takes tensors takes it. Results of ops are plain tensors.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> w = torch.nn.Parameter(torch.ones(16, 8).to("spmdx"))
        >>> w = spmdx.mark_sharding(w, mesh, ("model", None))
        >>> isinstance(w, spmdx.ShardedTensor), isinstance(w, torch.nn.Parameter)
        (True, True)
        >>> w.local_shards[1].indices
        (slice(8, 16, None), slice(0, 8, None))
        >>> type(w + 1)
        <class 'torch.Tensor'>
    """

    # As PyTorch's own subclasses; in its stubs a method and this function do not agree.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def sharding(self) -> Sharding | None:
        """How it lies on the devices."""
        return sharding_of(self)

    def _known(self, asked: str) -> Sharding:
        sharding = self.sharding
        if sharding is None:
            with naming(asked):
                raise ShardingError(
                    "the tensor has no sharding. Expected one that was annotated. "
                    "Call spmdx.mark_sharding on it first."
                )
        return sharding

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self._known("mesh").mesh

    @property
    def partition_spec(self) -> PartitionSpec:
        """One entry a dim: None, the name of an axis, or a tuple of names."""
        return self._known("partition_spec").spec

    @property
    def placements(self) -> tuple[Any, ...]:
        """The same as DTensor placements, one for each axis of the mesh."""
        return self._known("placements").placements

    @property
    def local_shards(self) -> list[LocalShard]:
        """One piece for each device of this process, in the mesh's order; waits for the data."""
        data, handle = _C.local_data(self)
        sharding = self._known("local_shards") if handle is None else Sharding(handle)
        mesh, positions = sharding.mesh, sharding.addressable_positions
        if handle is None:  # held whole, for all
            data = data * len(positions)
        parts = zip(sharding.boxes(self.shape), sharding._handle.replica_ids(), strict=True)
        part_at = dict(zip(sharding.positions, parts, strict=True))
        return [
            LocalShard(piece, *part_at[p], int(mesh.device_ids[p]))
            for piece, p in zip(data, positions, strict=True)
        ]

    def load_local_shards_(self, shards: Sequence["torch.Tensor | LocalShard"]) -> "ShardedTensor":
        """Overwrite the elements with one piece a device; the sharding stays.

        Every process calls it. All of them take their pieces, or none does.

        Args:
            shards: tensors of the shapes of ``local_shards``, in the mesh's order, same dtype;
                of replicas the first counts. Where there are many processes, those of this one.

        Returns:
            The tensor itself.

        Raises:
            ShardingError: the number of pieces, their shapes or dtypes do not fit.
            CommError: those of another process do not, or it does not come.

        Example:
            >>> import torch, spmdx
            >>> x = torch.zeros(8).to("spmdx")
            >>> x = spmdx.mark_sharding(x, spmdx.get_1d_mesh("data"), ("data",))
            >>> _ = x.load_local_shards_([torch.tensor([float(i)]) for i in range(8)])
            >>> x.cpu().tolist()
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
        """
        with naming("load_local_shards_"):
            all_or_none("load_local_shards_", lambda: self._fitting(shards), self._take)
        return self

    def _fitting(self, shards: Sequence["torch.Tensor | LocalShard"]) -> tuple[Sharding, list]:
        """The sharding, and the tensors of ``shards``, which are parts of this one."""
        sharding = self._known("load_local_shards_")
        pieces = pieces_of(shards, sharding, self.dtype)
        check_shapes(shapes_of(pieces, sharding), sharding, self.shape)
        return sharding, pieces

    def _take(self, fitting: tuple[Sharding, list]) -> None:
        sharding, pieces = fitting
        with torch.no_grad():
            _C.load_local(self, sharding._handle, pieces)
        torch.autograd.graph.increment_version(self)  # for graphs that have saved it

    def redistribute(self, mesh: Any = None, spec: Sequence[Any] = ()) -> "ShardedTensor":
        """The same values with another sharding; autograd flows through.

        Args:
            mesh: a :class:`spmdx.Mesh` or a ``torch.distributed.DeviceMesh``; None means the global
                mesh. A :class:`spmdx.Sharding` is mesh and spec.
            spec: a partition spec, or DTensor placements, one for each axis of the mesh.

        Returns:
            A new tensor.

        Raises:
            ShardingError: no mesh, or a spec that does not fit.

        Example:
            >>> import torch, spmdx
            >>> mesh = spmdx.get_1d_mesh("data")
            >>> x = spmdx.mark_sharding(torch.ones(8, 8).to("spmdx"), mesh, ("data", None))
            >>> x.redistribute(mesh, (None, "data")).partition_spec
            PartitionSpec(None, 'data')
        """
        with naming("redistribute"):
            mesh, spec = pair_of(mesh, spec)
            entries = spec if isinstance(spec, tuple | list) else ()
            if any(hasattr(entry, "is_shard") for entry in entries):
                mesh, spec = placed_on(mesh, spec, self.dim())
            handle = handle_for(self, mesh, spec)
        return annotate(self.clone(), handle)

    def full_tensor(self) -> torch.Tensor:
        """All of it, on the CPU; waits for the data, autograd flows through."""
        return self.cpu()

    @staticmethod
    def from_local_shards(
        shards: Sequence["torch.Tensor | LocalShard"],
        mesh: Mesh | Sharding | None = None,
        spec: Sequence[Any] = (),
    ) -> "ShardedTensor":
        """A tensor made of one piece a device.

        Args:
            shards: CPU tensors of one dtype and rank, one for each device of the mesh in this
                process, in the mesh's order. A dim that is cut is as long as its pieces together,
                those of other processes included; of replicas the first counts.
            mesh: the devices; None means the global mesh. A :class:`spmdx.Sharding` is mesh and
                spec.
            spec: a partition spec.

        Returns:
            A tensor on device "spmdx".

        Raises:
            ShardingError: the number of pieces, their ranks, shapes or dtypes do not fit.
            CommError: another process has refused its own, or does not come.

        Example:
            >>> import torch, spmdx
            >>> mesh = spmdx.get_1d_mesh("data")
            >>> pieces = [torch.full((1, 2), float(i)) for i in range(8)]
            >>> spmdx.ShardedTensor.from_local_shards(pieces, mesh, ("data", None)).shape
            torch.Size([8, 2])
        """
        with naming("from_local_shards"):
            given, entries = pair_of(get_global_mesh() if mesh is None else mesh, spec)
            pieces, dtype, shapes = all_pieces(shards, given)
            devices = require_mesh(given)
            shape = global_shape(shapes, devices, entries)
            sample = torch.empty(shape, dtype=dtype, device="meta")
            sharding = Sharding(to_handle(entries, devices, sample, "the tensor"))
            check_shapes(dict(enumerate(shapes)), sharding, shape)
            result = _C.from_local(pieces, sharding._handle, list(shape), dtype)
            return annotate(result, sharding._handle)

    @staticmethod
    def from_dtensor(dtensor: Any) -> "ShardedTensor":
        """A tensor of the same elements in the same memory, where processes have one device each.

        Its ops never write to that memory. What is written to the DTensor later may be seen here.

        Args:
            dtensor: a ``torch.distributed.tensor.DTensor`` on the CPU, no sum of parts.

        Returns:
            A tensor on device "spmdx", a parameter if it was one; autograd does not flow through.

        Raises:
            ShardingError: it is no DTensor, not on the CPU, or has a placement that cannot be said.

        Example:
            >>> import torch, spmdx
            >>> spmdx.ShardedTensor.from_dtensor(torch.ones(2))
            Traceback (most recent call last):
            ...
            spmdx.errors.ShardingError: ...from_dtensor: a Tensor was given. Expected a ...
        """
        return from_dtensor(dtensor)

    def to_dtensor(self) -> Any:
        """A ``torch.distributed.tensor.DTensor`` of the same elements in the same memory.

        Do not write to it: the tensor itself, and others, may lie there too. Waits for the data.
        Every process calls it, since the first one of a mesh makes groups of processes.

        Returns:
            A leaf, a parameter if this is one; autograd does not flow through.

        Raises:
            ShardingError: processes have several devices, or DTensor cannot say the sharding.

        Example:
            >>> import torch, spmdx
            >>> mesh = spmdx.get_1d_mesh("data")
            >>> x = spmdx.mark_sharding(torch.ones(8).to("spmdx"), mesh, ("data",))
            >>> x.to_dtensor()  # in one process with eight virtual devices
            Traceback (most recent call last):
            ...
            spmdx.errors.ShardingError: ...to_dtensor: the mesh has 8 devices, this program 1 ...
        """
        with naming("to_dtensor"):
            return to_dtensor(self, self._known("to_dtensor"))

    def __coerce_same_metadata_as_tangent__(self, metadata: Any, expected: Any = None) -> Any:
        """The plain tensor that graphs of torch.compile take where autograd brings this one."""
        return self.detach() if expected is torch.Tensor else None

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "a tensor that autograd computed cannot be deep-copied. Expected a leaf. "
                "Copy .detach() of it."
            )
        return copies.deep_copy(self, plain_class(type(self)), memo)

    def __copy__(self) -> torch.Tensor:
        return copies.shallow_copy(self, plain_class(type(self)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copies.reduced(self, plain_class(type(self)), protocol)

    # Of special methods mypy forgets the names of arguments, so it sees none that agree.
    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        text = repr(self.detach()).removeprefix("tensor")
        note = "" if self.requires_grad is False else ", requires_grad=True"
        return f"ShardedTensor{text[:-1] if text.endswith(')') else text}{note}, {self.sharding!r})"

    def __format__(self, spec: str) -> str:
        is_number = self.dim() == 0 and plain_class(type(self)) is torch.Tensor  # as PyTorch asks
        return format(self.item(), spec) if is_number else object.__format__(self, spec)


@taken_by(torch.nn.Parameter)
class ShardedParameter(ShardedTensor, torch.nn.Parameter):
    """What an annotated ``torch.nn.Parameter`` becomes: both at once."""

    # As above.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    # As above.
    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + ShardedTensor.__repr__(self)
