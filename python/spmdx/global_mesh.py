# SPDX-License-Identifier: Apache-2.0
"""The mesh that counts wherever none is given."""

from typing import Any

from spmdx.errors import ShardingError, naming
from spmdx.mesh import Mesh

_global_mesh: Mesh | None = None


def require_mesh(mesh: Any) -> Mesh:
    """The mesh, or the global one for None. Raises ShardingError where that is none."""
    if mesh is None and _global_mesh is not None:
        return _global_mesh
    if mesh is None:
        raise ShardingError(
            "no mesh is given, and there is no global one. Expected a spmdx.Mesh. Pass one, or "
            "call spmdx.set_global_mesh first."
        )
    if not isinstance(mesh, Mesh):
        raise ShardingError(
            f"the mesh is a {type(mesh).__name__}. Expected a spmdx.Mesh. Make one with "
            "spmdx.Mesh(device_ids, mesh_shape, axis_names)."
        )
    return mesh


def set_global_mesh(mesh: Mesh | None) -> None:
    """Set the mesh that counts wherever none is given.

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
