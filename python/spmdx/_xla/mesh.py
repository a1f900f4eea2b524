# SPDX-License-Identifier: Apache-2.0
"""torch_xla's Mesh: as strict as that one, and made of a mesh of spmdx."""

import ast
import functools
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from spmdx import runtime
from spmdx._annotate import mesh as own
from spmdx._xla.device import counters
from spmdx._xla.op_sharding import OpSharding, op_sharding

PartitionSpec = tuple  # one entry a dim: None, an axis (name or index), or a tuple of axes
_counting = {"devices": runtime.global_runtime_device_count}


def count_devices_with(count: Any) -> None:
    """Lets meshes ask ``count()`` how many devices there are."""
    _counting["devices"] = count


class Mesh:
    """Devices in a grid whose axes may have names. It has all devices there are.

    Args:
        device_ids: ids of the devices, row-major over the grid.
        mesh_shape: the size of every axis.
        axis_names: a name for every axis, or None.

    Raises:
        AssertionError: the ids are not all devices, each once, or do not fit the shape; or there
            are not as many names as axes, or one twice.

    Example:
        >>> from spmdx.torch_xla.distributed import spmd as xs
        >>> mesh = xs.Mesh(range(8), (4, 2), ("data", "model"))
        >>> mesh.size(), mesh.shape()["model"]
        (8, 2)
    """

    device_ids: np.ndarray
    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...] | None

    def __init__(
        self,
        device_ids: "np.ndarray | Iterable[int]",
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ):
        ids = np.array(device_ids if isinstance(device_ids, np.ndarray) else list(device_ids))
        self.device_ids, self.mesh_shape = ids, tuple(int(size) for size in mesh_shape)
        self.axis_names = None if axis_names is None else tuple(axis_names)
        self._check()

    def _check(self) -> None:
        ids, shape, names = self.device_ids, self.mesh_shape, self.axis_names
        count, size = _counting["devices"](), math.prod(shape)
        if names is not None:
            assert len(names) == len(shape), (
                f"Number of axis names ({len(names)}) must match mesh dimensions ({len(shape)})"
            )
            assert len(set(names)) == len(names), "Axis names must be unique"
        assert len(ids) == size, f"Number of device IDs ({len(ids)}) must match mesh size ({size})"
        assert len(ids) == count, (
            f"Number of device IDs ({len(ids)}) must match the global number of devices ({count})"
        )
        assert len(set(ids.tolist())) == len(ids), "Device IDs must be unique"
        assert max(ids) < len(ids) and min(ids) >= 0, "Device IDs must be less than mesh size"

    @functools.cached_property
    def own(self) -> own.Mesh:
        """The mesh of spmdx with the same devices."""
        return own.Mesh(self.device_ids.tolist(), self.mesh_shape, self.axis_names)

    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.mesh_shape)

    def shape(self) -> "OrderedDict[Any, int]":
        """The size of every axis by its name, or by its index where axes have none."""
        keys = self.axis_names or range(len(self.mesh_shape))
        return OrderedDict(zip(keys, self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> np.ndarray:
        """The ids of the devices as an array of shape ``mesh_shape``."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """The index of the axis called ``name``, or None."""
        names = self.axis_names or ()
        return names.index(name) if name in names else None

    @functools.lru_cache  # noqa: B019  # as torch_xla; meshes are few
    def get_op_sharding(self, partition_spec: tuple) -> OpSharding:
        """The sharding that a partition spec means on this mesh.

        Args:
            partition_spec: one entry a dim.

        Returns:
            Of equal specs the same object.

        Raises:
            AssertionError: an axis twice or out of range.
            ValueError: a name that no axis has, or an entry of another type.
        """
        counters.count("CreateOpSharding")
        return op_sharding(self.own, self.axes_of(partition_spec), tuple(partition_spec))

    get_op_sharding_v2 = get_op_sharding

    def axes_of(self, partition_spec: Sequence[Any]) -> list[list[int]]:
        """For each dim the indices of the axes that cut it, major first; raises as above."""
        dims = [
            [self._axis(a) for a in entry]
            if isinstance(entry, tuple)
            else []
            if entry is None
            else [self._axis(entry)]
            for entry in partition_spec
        ]
        used = [axis for dim in dims for axis in dim]
        assert all(0 <= axis < len(self.mesh_shape) for axis in used), (
            f"partition_spec ({partition_spec}) contains out of bound index into mesh_shape."
        )
        assert len(set(used)) == len(used), (
            f"Each device mesh dimension should appear at most once in partition_spec "
            f"{partition_spec}."
        )
        return dims

    def _axis(self, axis: Any) -> int:
        if isinstance(axis, str):
            found = self.get_axis_name_idx(axis)
            if found is None:
                raise ValueError(f"Axis name {axis} is not defined in the given mesh")
            return found
        assert not isinstance(axis, tuple), f"Tuples in a partition spec cannot hold tuples: {axis}"
        if type(axis) is not int:
            raise ValueError(f"Spec type {type(axis)} is not supported")
        return axis

    def __str__(self) -> str:
        ids = self.device_ids.tolist()
        return str({"device_ids": ids, "mesh_shape": self.mesh_shape, "names": self.axis_names})

    @classmethod
    def from_str(cls, mesh_str: str) -> "Mesh | None":
        """The mesh that ``str`` of it gives; None where the text is no mesh's."""
        try:
            said = ast.literal_eval(mesh_str)
            return Mesh(said["device_ids"], said["mesh_shape"], said["names"])
        except (ValueError, SyntaxError, KeyError, TypeError):
            return None

    def get_jax_mesh(self) -> Any:
        """Raises NotImplementedError: there is no JAX here."""
        raise NotImplementedError("get_jax_mesh means nothing on spmdx. Use mesh.own instead.")


class HybridMesh(Mesh):
    """A mesh of blocks: fast links inside a block of devices, slower ones between blocks.

    Args:
        ici_mesh_shape: the size of every axis inside a block.
        dcn_mesh_shape: the number of blocks along every axis; None means one block.
        axis_names: a name for every axis, or None.

    Raises:
        AssertionError: as :class:`Mesh`.

    Example:
        >>> from spmdx.torch_xla.distributed import spmd as xs
        >>> mesh = xs.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(2, 1))
        >>> mesh.get_logical_mesh().tolist()
        [[0, 1], [2, 3], [4, 5], [6, 7]]
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ):
        self.ici_mesh_shape = tuple(ici_mesh_shape)
        self.dcn_mesh_shape = tuple(dcn_mesh_shape or (1,) * len(self.ici_mesh_shape))
        hybrid = own.HybridMesh(self.ici_mesh_shape, self.dcn_mesh_shape, axis_names)
        super().__init__(hybrid.device_ids, hybrid.mesh_shape, axis_names)
        self.own = hybrid


_global: list[Mesh | None] = [None]


def set_global_mesh(mesh: Mesh | None) -> None:
    """Set the mesh that counts where none is given.

    Args:
        mesh: the mesh, or None to forget it.
    """
    _global[0] = mesh
    own.choose_mesh(None if mesh is None else mesh.own)


def get_global_mesh() -> Mesh | None:
    """The mesh that :func:`set_global_mesh` was given, or None."""
    return _global[0]


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """The mesh of all devices on one axis.

    Args:
        axis_name: the name of the axis, or None.

    Returns:
        A mesh of shape ``(number of devices,)``.
    """
    count = _counting["devices"]()
    return Mesh(np.arange(count), (count,), None if axis_name is None else (axis_name,))
