# SPDX-License-Identifier: Apache-2.0
"""Mesh: named axes over an ordered set of devices."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spmdx import _C
from spmdx.errors import ShardingError, naming
from spmdx.runtime import _device_count_for_mesh

if TYPE_CHECKING:
    from torch.distributed import DeviceMesh

_global_mesh: "Mesh | None" = None
# Made where nothing runs: nobody has asked yet whether their devices exist.
_imagined: "set[Mesh]" = set()


def _integers(values: Iterable[int], what: str) -> list[int]:
    try:
        return [int(v) for v in np.asarray(list(values)).reshape(-1).tolist()]
    except (TypeError, ValueError):
        raise ShardingError(
            f"{what} is {values!r}. Expected integers. Write range(8) or (4, 2)."
        ) from None


def require_devices(ids: Sequence[int]) -> None:
    """Raise ShardingError unless this machine has all these devices."""
    count = _device_count_for_mesh()
    missing = [i for i in ids if i >= count]
    if missing:
        raise ShardingError(
            f"the mesh wants device {missing[0]}, but there are {count} devices "
            f"(0 to {count - 1}). Expected ids below {count}. Set SPMDX_NUM_DEVICES="
            f"{max(ids) + 1}, call spmdx.runtime.set_device_count({max(ids) + 1}) "
            "first, or make the mesh smaller."
        )


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
            ids = _integers(device_ids, "device_ids")
            sizes = _integers(mesh_shape, "mesh_shape")
            names = [] if axis_names is None else [str(name) for name in axis_names]
            if axis_names is not None and sizes and not names:
                raise ShardingError(
                    f"the mesh has {len(sizes)} axes but no names. Expected one name for each "
                    "axis. Write as many names, or None."
                )
            handle = _C.MeshHandle(ids, sizes, names)
            self._handle = handle
            if _C.planning_only():
                _imagined.add(self)
            else:
                require_devices(ids)

    @classmethod
    def _of(cls, handle: "_C.MeshHandle") -> "Mesh":
        mesh = object.__new__(cls)
        mesh._handle = handle
        return mesh

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices, flat, in order of position."""
        return np.array(self._handle.device_ids, dtype=np.int64)

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
            device_mesh: its ranks become device ids.

        Returns:
            A mesh of the same shape.
        """
        grid = device_mesh.mesh
        return cls(grid.flatten().tolist(), tuple(grid.shape), device_mesh.mesh_dim_names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __repr__(self) -> str:
        return str(self._handle)

    def __reduce__(self):
        return Mesh, (list(self._handle.device_ids), self.mesh_shape, self.axis_names)


def get_1d_mesh(axis_name: str = "axis0") -> Mesh:
    """The mesh of all devices on one axis.

    Args:
        axis_name: the name of the axis.

    Returns:
        A mesh of shape ``(number of devices,)``.

    Example:
        >>> import spmdx
        >>> spmdx.get_1d_mesh("data")
        Mesh(data=8)
    """
    count = _device_count_for_mesh()
    return Mesh(range(count), (count,), (axis_name,))


def set_global_mesh(mesh: Mesh | None) -> None:
    """Remember a mesh that :func:`get_global_mesh` gives back.

    Args:
        mesh: the mesh, or None to forget it.

    Example:
        >>> import spmdx
        >>> spmdx.set_global_mesh(spmdx.Mesh(range(8), (8,), ("data",)))
        >>> spmdx.get_global_mesh()
        Mesh(data=8)
        >>> spmdx.set_global_mesh(None)
    """
    global _global_mesh
    if mesh is not None and not isinstance(mesh, Mesh):
        with naming("set_global_mesh"):
            raise ShardingError(
                f"the argument is a {type(mesh).__name__}. Expected a spmdx.Mesh or None. "
                "Make one with spmdx.Mesh(device_ids, mesh_shape, axis_names)."
            )
    _global_mesh = mesh


def get_global_mesh() -> Mesh | None:
    """The mesh that :func:`set_global_mesh` was given, or None."""
    return _global_mesh
