# SPDX-License-Identifier: Apache-2.0
"""The mesh that counts wherever none is given."""

from spmdx._annotate.mesh import Mesh, choose_mesh, chosen_mesh
from spmdx.errors import ShardingError, naming


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
    if mesh is not None and not isinstance(mesh, Mesh):
        with naming("set_global_mesh"):
            raise ShardingError(
                f"the argument is a {type(mesh).__name__}. Expected a spmdx.Mesh or None. "
                "Make one with spmdx.Mesh(device_ids, mesh_shape, axis_names)."
            )
    choose_mesh(mesh)


def get_global_mesh() -> Mesh | None:
    """The mesh that :func:`set_global_mesh` was given, or None."""
    return chosen_mesh()
