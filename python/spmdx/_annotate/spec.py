# SPDX-License-Identifier: Apache-2.0
"""PartitionSpec and Sharding: what users write for a tensor, and what spmdx decided."""

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self

import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh, require_mesh, require_real
from spmdx._base.arguments import integers
from spmdx._base.entries import axes_written, entry_of, require_spec, written
from spmdx.errors import ShardingError, naming

if TYPE_CHECKING:
    from torch.distributed.tensor.placement_types import Placement

SpecEntry = None | int | str | tuple[int | str, ...] | EllipsisType


class PartitionSpec(tuple):
    """One entry a dim: None, an axis (name or index), or a tuple of axes, first is major.

    A plain tuple does as well; axes that are not named hold replicas. One entry may be ``...``: it
    stands for as many None as the tensor has dims that the other entries leave over.

    Args:
        *entries: the entries.

    Example:
        >>> import spmdx
        >>> spmdx.PartitionSpec("data", None)
        PartitionSpec('data', None)
        >>> spmdx.PartitionSpec("data", None) == ("data", None)
        True
        >>> spmdx.PartitionSpec("data", ..., "model")
        PartitionSpec('data', ..., 'model')
    """

    __slots__ = ()

    def __new__(cls, *entries: SpecEntry) -> Self:
        return super().__new__(cls, entries)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(written, self))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionSpec, tuple(self)


class Sharding:
    """Which mesh axes cut each dim of a value. Immutable, hashable.

    It may be passed wherever a mesh and a partition spec go, in place of both.

    Args:
        mesh: the devices; None means the global mesh.
        spec: a partition spec. One with ``...`` is for tensors of any rank that is enough.
        stage: an axis of ``mesh`` and a stage along it, whose devices alone hold the value; None:
            all devices do.
        on_host: whether the value lies in the memory of the hosts of its devices between steps.

    Raises:
        ShardingError: no mesh, a spec that does not fit it, or ``on_host`` is no bool.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> rows = spmdx.Sharding(mesh, ("data", ...))
        >>> rows
        Sharding(Mesh(data=4, model=2), PartitionSpec('data', ...))
        >>> x = spmdx.mark_sharding(torch.zeros(64, 128).to("spmdx"), rows)
        >>> x.sharding.spec
        PartitionSpec('data', None)
        >>> x.sharding.mesh == mesh
        True

    Source: a pair of this kind is JAX's ``NamedSharding``.
    """

    __slots__ = ("_handle", "_rest")

    def __init__(
        self,
        mesh: "Mesh | _C.ShardingHandle | None",
        spec: Sequence[Any] | None = None,
        stage: tuple[str, int] | None = None,
        on_host: bool = False,
    ):
        self._rest: int | None = None  # where the spec has its ellipsis, if it has one
        if isinstance(mesh, _C.ShardingHandle):  # as spmdx makes them
            self._handle = mesh
            return
        with naming("Sharding"):
            devices = require_mesh(mesh)
            require_spec(spec, devices.axis_names, 1)
            given = list(spec or ())
            expanded(given, len(given), "the tensor")  # at most one ellipsis
            if ... in given:
                self._rest = given.index(...)
                del given[self._rest]
            sample = torch.empty((devices.size(),) * len(given), device="meta")
            self._handle = to_handle(given, devices, sample, "the tensor")
            if stage is not None:
                self._handle = at_stage(self._handle, stage)
            if on_host is not False:
                self._handle = _at_host(self._handle, on_host)

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return Mesh._of(self._handle.mesh)

    @property
    def spec(self) -> PartitionSpec:
        """One entry a dim: None, the name of an axis, or a tuple of names."""
        entries = [entry_of(axes) for axes in self._handle.entries]
        if self._rest is not None:
            entries.insert(self._rest, ...)
        return PartitionSpec(*entries)

    @property
    def stage(self) -> tuple[str, int] | None:
        """The axis along which stages lie and the one that holds the value; None: all devices.

        Example:
            >>> import torch, spmdx
            >>> mesh = spmdx.Mesh(range(8), (2, 4), ("pipe", "data"))
            >>> x = spmdx.mark_stage(torch.ones(8).to("spmdx"), mesh, 1)
            >>> spmdx.get_annotation(x).stage
            ('pipe', 1)
        """
        return self._handle.place

    @property
    def on_host(self) -> bool:
        """Whether the value lies in the memory of the hosts of these devices between steps.

        Example:
            >>> import spmdx
            >>> spmdx.Sharding(spmdx.get_1d_mesh("data"), ("data",), on_host=True).on_host
            True
        """
        return self._handle.host

    @property
    def positions(self) -> list[int]:
        """The positions of the mesh that hold a part of the value, ascending."""
        return self._handle.positions

    @property
    def addressable_positions(self) -> list[int]:
        """Those of ``positions`` whose devices are in this process.

        Example:
            >>> import spmdx
            >>> spmdx.Sharding(spmdx.Mesh([3, 1], (2,), ("data",)), (None,)).addressable_positions
            [0, 1]
        """
        here = set(self._handle.mesh.addressable_positions)
        return [position for position in self.positions if position in here]

    @property
    def partial(self) -> tuple[str, ...]:
        """The axes over which the value still has to be reduced."""
        return tuple(self._handle.partial)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds all of it."""
        return self._handle.replicated

    @property
    def placements(self) -> "tuple[Placement, ...]":
        """The same as DTensor placements, one for each axis of the mesh.

        Raises:
            ShardingError: DTensor cannot say it: a part of an axis, or a minor axis first.
        """
        from torch.distributed.tensor import Partial, Replicate, Shard

        names = self.mesh.axis_names
        result: list[Any] = [Replicate() for _ in names]
        for at, axes in enumerate(self._handle.entries):
            after = self._rest is not None and at >= self._rest
            dim = at - len(self._handle.entries) if after else at
            places = [names.index(a) if a in names else -1 for a in axes]
            if -1 in places or places != sorted(places):
                with naming("placements"):
                    raise ShardingError(
                        f"DTensor placements cannot say {self}. Expected whole axes, major first. "
                        "Read .partition_spec instead."
                    )
            for place in places:
                result[place] = Shard(dim)
        for axis in self.partial:
            result[names.index(axis)] = Partial(self._handle.reduction)
        return tuple(result)

    def boxes(self, shape: Sequence[int]) -> list[tuple[slice, ...]]:
        """What each of ``positions`` holds of a tensor of this global shape.

        Raises:
            ShardingError: it is no shape, or one of another rank.
        """
        with naming("boxes"):
            sizes = integers(shape, "the shape", "Write (8, 4).")
            if self._rest is not None:
                spec = expanded(self.spec, len(sizes), "the shape")
                return Sharding(self.mesh, spec).boxes(sizes)
            rank = len(self._handle.entries)
            if len(sizes) != rank or min(sizes, default=0) < 0:
                raise ShardingError(
                    f"{self!r} is of a tensor of rank {rank}, the shape is {tuple(sizes)}. "
                    f"Expected {rank} sizes of at least 0. Pass the shape of the tensor that it is "
                    "of."
                )
        return [tuple(slice(a, b) for a, b in box) for box in self._handle.boxes(sizes)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sharding):
            return False
        return self._handle == other._handle and self._rest == other._rest

    def __hash__(self) -> int:
        return hash((self._handle, self._rest))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.partial:
            raise TypeError(f"{self!r} is of summands, which are not saved. Save that of a result.")
        return Sharding, (self.mesh, self.spec, self.stage, self.on_host)

    def __repr__(self) -> str:
        partial = f", partial {self._handle.reduction}: {self.partial}" if self.partial else ""
        stage = "" if self.stage is None else "{}={}".format(*self.stage)
        at = " ".join(filter(None, (stage, "host" if self.on_host else "")))
        place = f", on {at}" if at else ""
        return f"Sharding({self.mesh!r}, {self.spec!r}{partial}{place})"


def expanded(spec: Sequence[Any], rank: int, name: str) -> tuple[Any, ...]:
    """The spec with None for the dims that its ``...`` stands for.

    Args:
        spec: entries.
        rank: of the tensor.
        name: what messages call the tensor.

    Returns:
        The entries as they are where there is no ellipsis, one for each dim where there is one.

    Raises:
        ShardingError: there are two, or the other entries are more than the tensor has dims.
    """
    count = sum(entry is ... for entry in spec)
    if not count:
        return tuple(spec)
    said, others = PartitionSpec(*spec), len(spec) - count
    if count > 1:
        raise ShardingError(
            f"the partition spec {said} has {count} ellipses. Expected at most one: it stands for "
            "all dims that are left over. Write None for dims beside it."
        )
    if others > rank:
        raise ShardingError(
            f"the partition spec {said} names {others} dims beside its ellipsis, the rank of "
            f"{name} is {rank}. Expected no more than {rank}. Leave entries out."
        )
    at = next(i for i, entry in enumerate(spec) if entry is ...)
    return (*spec[:at], *(None,) * (rank - others), *spec[at + 1 :])


def pair_of(mesh: Any, spec: Any) -> tuple[Any, Any]:
    """The mesh and the spec, both of a Sharding where one is given in place of either.

    Raises:
        ShardingError: there is another mesh or a spec besides, or the sharding is of summands.
    """
    given, rest = (spec, mesh) if isinstance(spec, Sharding) else (mesh, spec)
    if not isinstance(given, Sharding):
        return mesh, spec
    said = isinstance(rest, tuple | list) and not rest  # as the argument is by default
    if rest is not None and not said and not (given is spec and require_mesh(rest) == given.mesh):
        what = "another mesh" if given is spec else "a partition spec"
        raise ShardingError(
            f"{given!r} is given, and {what} besides: {rest!r}. Expected one of them. "
            "Leave the other out."
        )
    if given.partial:
        raise ShardingError(
            f"{given!r} is of summands. Expected one of whole values. Write a Sharding of the mesh "
            "and the spec."
        )
    return given.mesh, given.spec


def to_handle(spec: Any, mesh: Any, tensor: torch.Tensor, name: str) -> "_C.ShardingHandle":
    """The sharding of ``tensor``, which messages call ``name``. Raises ShardingError."""
    like = next((one for one in (mesh, spec) if isinstance(one, Sharding)), None)
    given, spec = pair_of(mesh, spec)
    mesh = require_mesh(given)
    require_spec(spec, mesh.axis_names, tensor.dim())
    require_real(mesh)
    entries = [axes_written(entry, spec) for entry in expanded(spec, tensor.dim(), name)]
    handle = _C.to_sharding(entries, mesh._handle, list(tensor.shape), name)
    if like is not None and like.stage is not None:
        handle = handle.on(*like.stage)
    return handle.on_host() if like is not None and like.on_host else handle


def at_stage(handle: "_C.ShardingHandle", stage: Any) -> "_C.ShardingHandle":
    """The same cuts on ``stage``: the name of an axis, and a number. Raises ShardingError."""
    if not isinstance(stage, tuple) or [*map(type, stage)] != [str, int]:
        raise ShardingError(
            f"the stage is {stage!r}. Expected the name of an axis and a number. Write ('pipe', 0)."
        )
    return handle.on(*stage)


def _at_host(handle: "_C.ShardingHandle", on_host: Any) -> "_C.ShardingHandle":
    if on_host is not True:
        raise ShardingError(
            f"on_host is {on_host!r}. Expected True or False. Write True to keep the value in the "
            "memory of hosts."
        )
    return handle.on_host()
