# SPDX-License-Identifier: Apache-2.0
"""The mesh that counts wherever none is given."""

from spmdx._annotate.mesh import Mesh, choose_mesh, chosen_mesh, require_mesh
from spmdx.errors import naming


def set_global_mesh(mesh: Mesh | None) -> None:
    """Set the mesh that counts wherever none is given.

    Args:
        mesh: the mesh, or None to forget it. Within a block, write ``with mesh:``.

    Example:
        >>> import spmdx
        >>> spmdx.set_global_mesh(spmdx.Mesh(range(8), (8,), ("data",)))
        >>> spmdx.get_global_mesh()
        Mesh(data=8)
        >>> spmdx.set_global_mesh(None)
    """
    with naming("set_global_mesh"):
        choose_mesh(None if mesh is None else require_mesh(mesh))


def get_global_mesh() -> Mesh | None:
    """The mesh that :func:`set_global_mesh` was given, or None."""
    return chosen_mesh()
