# SPDX-License-Identifier: Apache-2.0
"""Mesh: named axes over an ordered set of devices."""

import html
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import spmdx._C as _C
from spmdx._annotate.device_mesh import device_mesh, whole_of
from spmdx._annotate.mesh_arguments import device_ids_of, require_devices, require_few, shape_of
from spmdx._base.arguments import axis_names as _names
from spmdx._base.arguments import integers
from spmdx._world.processes import device_count_for_mesh
from spmdx.errors import ShardingError, naming

if TYPE_CHECKING:
    from torch.distributed import DeviceMesh

# Made where nothing runs: nobody has asked yet whether their devices exist.
_imagined: "set[Mesh]" = set()
_outer: "list[Mesh | None]" = []  # what counted before each `with mesh:` that is open


def require_real(mesh: "Mesh") -> None:
    """Raise ShardingError for a mesh from inside plan_only that would run on missing devices."""
    if mesh in _imagined and not _C.planning_only():
        require_devices(mesh._handle.device_ids)
        _imagined.discard(mesh)


class Mesh:
    """Devices in a grid whose axes have names. Immutable, hashable, picklable.

    Args:
        device_ids: ids of the devices, row-major over the grid; any subset, in any order.
        mesh_shape: the size of every axis. Their product is the number of ids.
        axis_names: a name for every axis; None gives ``"axis0"``, ``"axis1"``, ….

    Raises:
        ShardingError: repeated or missing ids, sizes or names that do not fit, or more devices
            than there are (inside :func:`spmdx.plan_only` there are any).

    Example:
        >>> import spmdx
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> mesh
        Mesh(data=4, model=2)
        >>> mesh.shape()["model"], mesh.size()
        (2, 8)
        >>> with mesh: print(spmdx.get_global_mesh())  # it counts where none is given
        Mesh(data=4, model=2)

    Source: the names follow PyTorch/XLA's SPMD; the idea is GSPMD's (arXiv:2105.04663).
    """

    __slots__ = ("_handle",)

    def __init__(
        self,
        device_ids: Iterable[int],
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ):
        with naming("Mesh"):
            ids, sizes = device_ids_of(device_ids), shape_of(mesh_shape)
            names = _names(axis_names)
            if axis_names is not None and sizes and not names:
                raise ShardingError(
                    f"the mesh has {len(sizes)} axes but no names. Expected one name for each "
                    "axis. Write as many names, or None."
                )
            self._handle = _C.MeshHandle(ids, sizes, names)
            self._check_devices()

    @classmethod
    def _of(cls, handle: "_C.MeshHandle") -> "Mesh":
        hybrid = any(part != 1 for part in handle.outer_shape)
        mesh = object.__new__(HybridMesh if hybrid else Mesh)
        mesh._handle = handle
        return mesh

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices, flat, in order of position."""
        return np.array(self._handle.device_ids, dtype=np.int64)

    @property
    def addressable_positions(self) -> list[int]:
        """The positions whose devices are in this process, ascending.

        Example:
            >>> import spmdx
            >>> spmdx.Mesh([3, 1], (2,), ("data",)).addressable_positions
            [0, 1]
        """
        _C.note_use()
        return self._handle.addressable_positions

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """The size of every axis."""
        return tuple(size for _, size in self._handle.axes)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The name of every axis."""
        return tuple(name for name, _ in self._handle.axes)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._handle.axes)

    def shape(self) -> "OrderedDict[str, int]":
        """The size of every axis by its name, in order."""
        return OrderedDict(self._handle.axes)

    def size(self) -> int:
        """The number of devices."""
        return len(self._handle.device_ids)

    def get_logical_mesh(self) -> np.ndarray:
        """The ids of the devices as an array of shape ``mesh_shape``."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """The index of the axis called ``name``, or None."""
        return self.axis_names.index(name) if name in self.axis_names else None

    @classmethod
    def from_device_mesh(cls, device_mesh: "DeviceMesh") -> "Mesh":
        """The mesh with the ids and the names of a ``torch.distributed.DeviceMesh``.

        Args:
            device_mesh: its ranks become device ids; None means the global mesh.

        Returns:
            A mesh of the same shape.
        """
        with naming("from_device_mesh"):
            if not hasattr(device_mesh, "mesh_dim_names"):
                return require_mesh(device_mesh)
            grid = device_mesh.mesh
            return Mesh(grid.flatten().tolist(), tuple(grid.shape), device_mesh.mesh_dim_names)

    def to_device_mesh(self) -> "DeviceMesh":
        """The ``torch.distributed.DeviceMesh`` of the same shape and names.

        Every process calls it: the first call for a mesh makes groups of processes.

        Returns:
            The same object for equal meshes; its ranks are the device ids.

        Raises:
            ShardingError: processes have several devices, or no default process group.

        Example:
            >>> import spmdx
            >>> spmdx.get_1d_mesh("data").to_device_mesh()  # in one process with virtual devices
            Traceback (most recent call last):
            ...
            spmdx.errors.ShardingError: ...to_device_mesh: the mesh has 8 devices, this ...
        """
        with naming("to_device_mesh"):
            ids = tuple(self.device_ids.tolist())
            return device_mesh(ids, self.mesh_shape, self.axis_names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __enter__(self) -> "Mesh":
        """In a ``with`` block it is the mesh that counts wherever none is given."""
        _outer.append(_chosen)
        choose_mesh(self)
        return self

    def __exit__(self, *raised: object) -> None:
        choose_mesh(_outer.pop())

    def __repr__(self) -> str:
        return str(self._handle)

    def _repr_html_(self) -> str:
        """Its name above the grid of its devices, the last axis along the rows."""
        grid = self.device_ids.reshape(-1, (self.mesh_shape or (1,))[-1]).tolist()
        cells = "".join(f"<tr>{''.join(f'<td>{d}</td>' for d in row)}</tr>" for row in grid)
        caption = f'<caption style="white-space: nowrap">{html.escape(repr(self))}</caption>'
        return f"<table>{caption}{cells}</table>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Mesh, (list(self._handle.device_ids), self.mesh_shape, self.axis_names)

    def _check_devices(self) -> None:
        """Raises where the mesh wants a device that is not there."""
        if _C.planning_only():
            _imagined.add(self)
        else:
            require_devices(self._handle.device_ids)


class HybridMesh(Mesh):
    """A mesh of blocks: fast links inside a block of devices, slower ones between blocks.

    Every axis is the product of its outer part, which leads from block to block, and its inner
    part. Consecutive devices form a block. Under a topology of two or more levels
    (:func:`spmdx.set_topology`) the planner keeps bytes inside the blocks where that is cheaper.

    Args:
        ici_mesh_shape: the size of every axis inside a block.
        dcn_mesh_shape: the number of blocks along every axis; None means one block.
        axis_names: a name for every axis; None gives ``"axis0"``, ``"axis1"``, ….
        device_ids: ids of the devices, block after block; None means 0, 1, 2, ….

    Raises:
        ShardingError: shapes of different lengths, or what :class:`Mesh` refuses.

    Example:
        >>> import spmdx
        >>> mesh = spmdx.HybridMesh(
        ...     ici_mesh_shape=(2, 2), dcn_mesh_shape=(2, 1), axis_names=("data", "model")
        ... )
        >>> mesh
        Mesh(data=2*2, model=2)
        >>> mesh.get_logical_mesh().tolist()
        [[0, 1], [2, 3], [4, 5], [6, 7]]

    Source: the names follow PyTorch/XLA's ``HybridMesh``.
    """

    __slots__ = ()

    def __init__(
        self,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
        device_ids: Iterable[int] | None = None,
    ):
        with naming("HybridMesh"):
            inner = integers(ici_mesh_shape, "ici_mesh_shape")
            outer = [1] * len(inner)
            if dcn_mesh_shape is not None:
                outer = integers(dcn_mesh_shape, "dcn_mesh_shape")
            if len(inner) != len(outer):
                raise ShardingError(
                    f"ici_mesh_shape has {len(inner)} sizes, dcn_mesh_shape {len(outer)}. Expected "
                    "as many. Write 1 for an axis that lies inside the blocks, or leads from one "
                    "to the next only."
                )
            sizes = [i * o for i, o in zip(inner, outer, strict=True)]
            if bad := [size for size in (*inner, *outer) if size < 1]:
                raise ShardingError(
                    f"the mesh has an axis of size {bad[0]}. Expected sizes of at least 1. Leave "
                    "the axis out, or make it 1."
                )
            count = math.prod(sizes)
            require_few(count)
            ids = device_ids_of(range(count) if device_ids is None else device_ids)
            if len(ids) == count:  # else the core says what is wrong
                ids = _blocks_to_grid(np.array(ids), inner, outer)
            self._handle = _C.MeshHandle(ids, sizes, _names(axis_names), outer)
            self._check_devices()

    @property
    def dcn_mesh_shape(self) -> tuple[int, ...]:
        """The number of blocks along every axis."""
        return tuple(self._handle.outer_shape)

    @property
    def ici_mesh_shape(self) -> tuple[int, ...]:
        """The size of every axis inside a block."""
        return tuple(s // o for s, o in zip(self.mesh_shape, self.dcn_mesh_shape, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        inner, outer = self.ici_mesh_shape, self.dcn_mesh_shape
        pairs = [size for pair in zip(outer, inner, strict=True) for size in pair]
        order = [*range(0, len(pairs), 2), *range(1, len(pairs), 2)]
        ids = self.device_ids.reshape(pairs).transpose(order).reshape(-1).tolist()
        return HybridMesh, (inner, outer, self.axis_names, ids)


def _blocks_to_grid(ids: np.ndarray, inner: list[int], outer: list[int]) -> list[int]:
    """Device ids block after block, as a row-major grid of axes that are outer · inner."""
    axes = len(inner)
    order = [axis for i in range(axes) for axis in (i, axes + i)]
    return ids.reshape([*outer, *inner]).transpose(order).reshape(-1).tolist()


def get_1d_mesh(axis_name: str = "axis0") -> Mesh:
    """The mesh of all devices on one axis.

    Args:
        axis_name: the name of the axis.

    Returns:
        A mesh of shape ``(number of devices,)``.

    Raises:
        ShardingError: no name.

    Example:
        >>> import spmdx
        >>> spmdx.get_1d_mesh("data")
        Mesh(data=8)
    """
    with naming("get_1d_mesh"):
        if not isinstance(axis_name, str):
            raise ShardingError(f"axis_name is {axis_name!r}. Expected a string. Write 'data'.")
        count = device_count_for_mesh()
        return Mesh(range(count), (count,), (axis_name,))


_chosen: Mesh | None = None  # the global mesh


def choose_mesh(mesh: Mesh | None) -> None:
    """Make it the global mesh."""
    global _chosen
    _chosen = mesh


def chosen_mesh() -> Mesh | None:
    """The global mesh, or None."""
    return _chosen


def require_mesh(mesh: Any) -> Mesh:
    """The mesh, also of a DeviceMesh, or the global one for None. Raises ShardingError."""
    if mesh is None and _chosen is not None:
        return _chosen
    if mesh is None:
        raise ShardingError(
            "no mesh is given, and there is no global one. Expected a spmdx.Mesh. Pass one, or "
            "call spmdx.set_global_mesh first."
        )
    if isinstance(mesh, Mesh):
        return mesh
    if hasattr(mesh, "mesh_dim_names"):
        return Mesh.from_device_mesh(whole_of(mesh))
    raise ShardingError(
        f"the mesh is a {type(mesh).__name__}. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names)."
    )
