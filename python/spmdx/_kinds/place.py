# SPDX-License-Identifier: Apache-2.0
"""Steps whose parts run where they end first."""

from spmdx._annotate.mesh import Mesh
from spmdx._kinds.devices import get_devices, kinds, place_along
from spmdx.errors import ShardingError, naming


def place(mesh: Mesh | None, axis: str | None = None) -> None:
    """Have each part of a step run on the devices of the kind where it ends first.

    From now on, for all steps on meshes that have this axis. The axis cuts no tensor: its
    coordinates are places, on which parts of a step run, whole, or cut by the other axes. Which
    part runs where is decided by what each kind takes for each op by its hardware and compiler,
    by what sends between them take, and by memory. Tensors stay where a step has made them.
    :func:`spmdx.explain` tells what was decided, in ``placement``.

    Args:
        mesh: of devices of :func:`spmdx.runtime.set_devices`; None: no step is placed so any more.
        axis: the one along which they are of several kinds; None: the only one.

    Raises:
        ShardingError: no kinds were set, no axis is called so, devices at one coordinate of it are
            of several kinds, or the axis is not told and more than one could be it.

    Example:
        >>> import torch, spmdx
        >>> spmdx.runtime.set_devices(["cpu"] * 6 + ["cpu@v100-32"] * 2)
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("kind", "data"))
        >>> spmdx.auto.place(mesh, "kind")
        >>> with spmdx.plan_only():
        ...     x = spmdx.mark_sharding(torch.ones(4096, 4096).to("spmdx"), mesh, ("data", None))
        ...     y = (x @ x).sum()
        ...     spmdx.mark_step()
        ...     report = spmdx.explain()
        >>> {segment.kind for segment in report.placement.segments}
        {'cpu@v100-32'}
        >>> spmdx.auto.place(None)
        >>> spmdx.runtime.set_devices([])

    Source: list scheduling on unlike processors as in HEFT, H. Topcuoglu et al., IEEE TPDS 13(3),
    2002; places as in docs/pipelines.md.
    """
    with naming("place"):
        if mesh is None:
            place_along("")
            return
        if not isinstance(mesh, Mesh):
            raise ShardingError(
                f"the mesh is a {type(mesh).__name__}. Expected a spmdx.Mesh, or None. Write "
                "spmdx.auto.place(mesh, 'kind')."
            )
        if not kinds():
            raise ShardingError(
                "all devices are of one kind. Expected kinds, by which to place. Call "
                "spmdx.runtime.set_devices(['cpu', 'xla:cpu']) first."
            )
        found = _axis_of(mesh) if axis is None else axis
        if found not in mesh.axis_names:
            raise ShardingError(
                f"no axis of {mesh} is called {found!r}. Expected one of "
                f"{', '.join(mesh.axis_names)}. Write axis={mesh.axis_names[0]!r}."
            )
        _require_one_kind_each(mesh, found)
        place_along(found)


def _coordinates(mesh: Mesh, axis: str) -> list[set[str]]:
    """The kinds of the devices at each coordinate."""
    names = get_devices()
    at = mesh.axis_names.index(axis)
    ids = mesh.device_ids.reshape(mesh.mesh_shape).swapaxes(0, at)
    rows = ids.reshape(mesh.mesh_shape[at], -1).tolist()
    return [{names[i] if i < len(names) else "" for i in row} for row in rows]


def _axis_of(mesh: Mesh) -> str:
    along = {axis: _coordinates(mesh, axis) for axis in mesh.axis_names}
    fit = [
        axis
        for axis, rows in along.items()
        if all(len(found) == 1 for found in rows) and len(set.union(*rows)) > 1
    ]
    if len(fit) == 1:
        return fit[0]
    if len(every := set.union(*next(iter(along.values())))) == 1:
        raise ShardingError(
            f"all devices of {mesh} are of one kind, {every.pop()}. Expected an axis along which "
            "kinds differ. Make the mesh of devices of several kinds, or name its axis: "
            f"axis={mesh.axis_names[0]!r}."
        )
    said = (
        f"devices are of several kinds along {' and '.join(fit)}" if fit else "no axis has one kind"
    )
    raise ShardingError(
        f"{said} at each coordinate of {mesh}. Expected one axis along which kinds differ. Make a "
        "mesh with an axis for them, or name it: axis='kind'."
    )


def _require_one_kind_each(mesh: Mesh, axis: str) -> None:
    for coordinate, found in enumerate(_coordinates(mesh, axis)):
        if "" in found or len(found) > 1:
            what = "of no kind" if "" in found else f"of kinds {' and '.join(sorted(found))}"
            raise ShardingError(
                f"devices at {axis}={coordinate} of {mesh} are {what}. Expected one kind at each "
                "coordinate. Order the mesh's devices so, or name their kinds in "
                "spmdx.runtime.set_devices."
            )
