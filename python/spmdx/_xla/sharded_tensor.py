# SPDX-License-Identifier: Apache-2.0
"""XLAShardedTensor: a tensor that stands for one on the device, and says how that is cut."""

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.utils import _pytree as pytree

from spmdx import runtime
from spmdx._base.entries import axes_in, entry_of
from spmdx._xla import marking, shards, state
from spmdx._xla.device.absent import refuse
from spmdx._xla.manual import ManualTensor
from spmdx._xla.op_sharding import ShardingType
from spmdx._xla.shards import XLAShard

_NO_PLACEMENTS = (
    "Placements not available: XLAShardedTensor requires mesh_shape and "
    "partition_spec to be set. Use mark_sharding() to properly initialize sharding information."
)


class XLAShardedTensor(DTensor):
    """A tensor that stands for ``global_tensor``; results of ops with it are such tensors, too.

    Args:
        elem: the tensor that it stands for.
        mesh_shape: the shape of the mesh that it was marked with.
        partition_spec: the spec that it was marked with.
        requires_grad: whether it is a leaf that gets a gradient.

    Example:
        >>> import torch
        >>> from spmdx.torch_xla import runtime as xr
        >>> from spmdx.torch_xla.distributed import spmd as xs
        >>> xr.use_spmd()
        >>> x = xs.mark_sharding(torch.ones(8, 2).to("spmdx"), xs.get_1d_mesh("x"), ("x", None))
        >>> x.sharding_spec
        '{devices=[8,1]0,1,2,3,4,5,6,7}'
        >>> x.local_shards[1].indices
        [slice(1, 2, 1), slice(0, 2, 1)]
    """

    global_tensor: torch.Tensor
    mesh_shape: tuple[int, ...] | None
    partition_spec: tuple | None
    _cached_spec: DTensorSpec | None

    __slots__ = ["global_tensor", "mesh_shape", "partition_spec", "_cached_spec"]

    def __new__(
        cls,
        elem: torch.Tensor,
        mesh_shape: tuple[int, ...] | None = None,
        partition_spec: tuple | None = None,
        *,
        requires_grad: bool = False,
    ) -> Self:
        result: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=torch.device("spmdx:0") if elem.device.type == "xla" else elem.device,
            requires_grad=requires_grad,
        )
        if isinstance(elem, XLAShardedTensor):
            mesh_shape = mesh_shape or elem.mesh_shape
            partition_spec = partition_spec or elem.partition_spec
        inner = state.unwrapped(elem)
        result.global_tensor = inner.detach() if requires_grad and not inner.is_leaf else inner
        result.mesh_shape, result.partition_spec = mesh_shape, partition_spec
        result._cached_spec = None
        return result

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    @property
    def local_shards(self) -> list[XLAShard]:
        """What each device of this process holds, padded; waits for the data."""
        return shards.shards_of(self.global_tensor)

    def load_local_shards_(self, loaded: Sequence[XLAShard]) -> None:
        """Overwrite the elements with those of shards.

        Args:
            loaded: one for each device of this process, as ``local_shards`` gives them; which
                device it is for, ``shard_device`` says.

        Raises:
            RuntimeError: too few or too many, two for one device, of another shape, or the tensor
                is replicated.
        """
        named = [(shard.shard_device, shard.data) for shard in loaded]
        shards.load(self.global_tensor, named)
        self.invalidate_spec_cache()

    @property
    def sharding_spec(self) -> str:
        """The sharding as XLA writes it; empty where none is known."""
        found = state.sharding_of(self.global_tensor)
        return "" if found is None else str(found)

    @property
    def sharding_type(self) -> ShardingType | None:
        """The kind of the sharding; None where none is known."""
        found = state.sharding_of(self.global_tensor)
        return None if found is None else found.kind

    def __deepcopy__(self, memo: dict) -> "XLAShardedTensor":
        inner = copy.deepcopy(self.global_tensor, memo)
        return XLAShardedTensor(inner, self.mesh_shape, self.partition_spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return XLAShardedTensor, (self.global_tensor, self.mesh_shape, self.partition_spec)

    def full_tensor(self, **options: Any) -> torch.Tensor:
        """The tensor that it stands for, which is global."""
        return self.global_tensor

    def to_local(self, **options: Any) -> Any:
        """Refused: what each device holds, ``local_shards`` gives."""
        refuse("XLAShardedTensor.to_local", "Read .local_shards: one for each device.")

    # Of special methods mypy forgets the names of arguments.
    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"XLAShardedTensor({self.global_tensor})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        inner_args, inner_kwargs = pytree.tree_map_only(
            XLAShardedTensor, lambda x: x.global_tensor, (args, kwargs or {})
        )
        made = func(*inner_args, **inner_kwargs)
        return pytree.tree_map_only(torch.Tensor, XLAShardedTensor, made)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        given = args, kwargs or {}
        if any(map(_is_manual, pytree.tree_leaves(given))) and func.__name__ != "__get__":
            args, kwargs = pytree.tree_map(lambda x: x.global_tensor if _is_manual(x) else x, given)
            made = func(*args, **kwargs)
            return pytree.tree_map_only(ManualTensor, XLAShardedTensor, made)
        return super(DTensor, cls).__torch_function__(func, types, *given)

    # A property where DTensor has an attribute: it is made when it is asked for.
    @property
    def _spec(self) -> DTensorSpec:  # type: ignore[override]
        if self._cached_spec is None:
            self._cached_spec = self._made_spec()
        return self._cached_spec

    def _made_spec(self) -> DTensorSpec:
        shape, spec = self.mesh_shape, self.partition_spec
        for name, value in (("mesh_shape", shape), ("partition_spec", spec)):
            if value is None:
                raise ValueError(
                    f"{name} must be specified to create DTensorSpec. Results of ops have none. "
                    "Use wrap_as_sharded_tensor() to set it."
                )
        assert shape is not None and spec is not None
        ids = torch.arange(runtime.global_runtime_device_count()).reshape(shape)
        inner = self.global_tensor
        return DTensorSpec(
            DeviceMesh("xla", ids),
            tuple(self._placement(axis, spec) for axis in range(len(shape))),
            TensorMeta(inner.shape, inner.stride(), inner.dtype),
        )

    def _placement(self, axis: int, spec: tuple) -> Any:
        for dim, entry in enumerate(spec):
            if axis in axes_in(entry):
                return Shard(dim)
        return Replicate()

    @property
    def placements(self) -> tuple[Any, ...]:
        """DTensor placements, one for each axis of the mesh.

        Raises:
            ValueError: it was not marked.
        """
        try:
            return tuple(self._spec.placements)
        except ValueError as error:
            raise ValueError(_NO_PLACEMENTS) from error

    def invalidate_spec_cache(self) -> None:
        """Forget the DTensorSpec; it is made anew when asked for."""
        self._cached_spec = None

    # The mesh is torch_xla's, where DTensor's is a DeviceMesh.
    def redistribute(  # type: ignore[override]
        self, device_mesh: Any, placements: Sequence[Any], *, async_op: bool = False
    ) -> "XLAShardedTensor":
        """The same values with another sharding.

        Args:
            device_mesh: a :class:`Mesh`.
            placements: one for each axis of the mesh.
            async_op: whether this tensor keeps the sharding that it has.

        Returns:
            A tensor that says the new sharding.

        Raises:
            ValueError: not as many placements as axes.
            NotImplementedError: a Partial placement.
            IndexError: a Shard of a dim that the tensor does not have.
        """
        spec = _spec_of(placements, device_mesh, self.dim())
        target = self.global_tensor.clone() if async_op else self.global_tensor
        marking.annotate(target, device_mesh.get_op_sharding(spec))
        return XLAShardedTensor(target, device_mesh.mesh_shape, spec)


def _is_manual(value: Any) -> bool:
    """Whether it stands for a tensor that is manual."""
    return type(value) is XLAShardedTensor and isinstance(value.global_tensor, ManualTensor)


def _spec_of(placements: Sequence[Any], mesh: Any, rank: int) -> tuple:
    """The partition spec of placements; axes that cut one dim make a tuple."""
    if len(placements) != len(mesh.mesh_shape):
        raise ValueError(
            f"Number of placements ({len(placements)}) must match mesh dimensions "
            f"({len(mesh.mesh_shape)})"
        )
    dims: list[list[int]] = [[] for _ in range(rank)]
    for axis, placement in enumerate(placements):
        if isinstance(placement, Partial):
            raise NotImplementedError("Partial placements cannot be asked for. Write Replicate().")
        if isinstance(placement, Shard):
            if not -rank <= placement.dim < rank:
                raise IndexError(f"Shard({placement.dim}) of a tensor with {rank} dims")
            dims[placement.dim].append(axis)
    return tuple(map(entry_of, dims))
