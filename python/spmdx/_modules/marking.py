# SPDX-License-Identifier: Apache-2.0
"""Many parameters marked at once, or none; modules and axes checked."""

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from spmdx._annotate.annotation import annotate, annotation_of, handle_for
from spmdx._annotate.device_mesh import axes_of
from spmdx._annotate.mesh import Mesh
from spmdx._base.entries import axes_in, entry_of
from spmdx._base.own_devices import NAMES
from spmdx.errors import ShardingError


def require_module(module: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ShardingError(
            f"the first argument is a {type(module).__name__}. Expected a torch.nn.Module. Pass a "
            "model or a part of one."
        )


def require_on_device(tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.device.type not in NAMES:
            raise ShardingError(
                f"{name} is on device '{tensor.device}'. Expected a module on device 'spmdx'. "
                'Move it there first: module.to("spmdx").'
            )


def mark_all(
    tensors: Mapping[str, torch.Tensor], mesh: Mesh | None, specs: Mapping[str, Any]
) -> None:
    """Marks those that have a spec: all of them, or none where one cannot be marked."""
    require_on_device({name: tensors[name] for name in specs})
    handles = {name: handle_for(tensors[name], mesh, spec, name) for name, spec in specs.items()}
    for name, handle in handles.items():
        annotate(tensors[name], handle)


def specs_by_pattern(plan: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """By name, the spec of the first pattern of ``plan`` that matches it, if one does."""
    found = {name: [p for p in plan if fnmatch.fnmatchcase(name, p)] for name in names}
    return {name: plan[patterns[0]] for name, patterns in found.items() if patterns}


def require_plan(plan: Any, names: Sequence[str]) -> None:
    """Raise ShardingError unless each of its patterns matches one of these names."""
    if not isinstance(plan, Mapping):
        raise ShardingError(
            f"the plan is a {type(plan).__name__}. Expected a dict from patterns of names to "
            "partition specs. Write {'*.weight': ('data', None)}."
        )
    for pattern in plan:
        if not isinstance(pattern, str) or not fnmatch.filter(names, pattern):
            raise ShardingError(
                f"the pattern {pattern!r} matches no parameter or buffer. Expected names "
                f"like {', '.join(map(repr, names[:3]))}. Mend the pattern, or drop it."
            )


def require_axis(mesh: Mesh, axis: Any, argument: str = "axis") -> None:
    """Raise ShardingError unless it is an axis of ``mesh``."""
    names = mesh.axis_names
    if axis not in names:
        mend = f"Pass {argument}={names[0]!r}" if names else "Give the mesh an axis"
        raise ShardingError(f"{mesh!r} has no axis {axis!r}. Expected one of {names}. {mend}.")


def beside(tensor: torch.Tensor, mesh: Mesh, axis: str) -> list[list[Any]]:
    """By dim, the other axes of ``mesh`` that ``tensor`` is annotated with, major first."""
    known = annotation_of(tensor)
    if known is None or known.mesh != mesh:
        return [[] for _ in range(tensor.dim())]
    return [[name for name in axes_in(entry) if name != axis] for entry in known.spec]


def added(entries: list[list[Any]], dim: int | None, axis: str) -> tuple[Any, ...]:
    """The partition spec with ``axis`` as the minor one of ``dim``, if there is a dim."""
    return tuple(entry_of([*e, axis] if at == dim else e) for at, e in enumerate(entries))


def cut_along(
    spec: Sequence[Any], shape: Sequence[int], mesh: Mesh, axis: str, uneven: bool = False
) -> tuple[Any, ...]:
    """``spec``, with ``axis`` as the minor one of the longest dim whose parts it divides.

    Dims that other axes leave whole come first. What names the axis already stays. ``uneven``:
    where it divides none, the longest whole dim with an element for each device of the axis.
    """
    cut = [list(axes_in(entry)) for entry in spec]
    if any(axis in axes for axes in cut):
        return tuple(spec)
    sizes = mesh.shape()
    n = sizes[axis]
    parts = [math.prod(sizes[a] for a in axes) for axes in cut]
    fits = [d for d, size in enumerate(shape) if size and size % (n * parts[d]) == 0]
    if uneven and not fits:
        fits = [d for d, size in enumerate(shape) if not cut[d] and size >= n]
    dim = max(fits, key=lambda d: (not cut[d], shape[d]), default=None)
    return added(cut, dim, axis)


def cut_besides(spec: Sequence[Any], shape: Sequence[int], axis: str, n: int) -> tuple[Any, ...]:
    """``spec``, and the longest dim that it leaves whole and ``n`` divides, cut by ``axis``."""
    whole = [d for d, entry in enumerate(spec) if entry is None]
    fits = [d for d in whole if shape[d] and shape[d] % n == 0]
    longest = max(fits, key=lambda d: shape[d], default=None)
    return tuple(axis if d == longest else entry for d, entry in enumerate(spec))


def axis_to_cut(given: Any, mesh: Mesh, axis: Any, default: str) -> str:
    """The axis that was named; else the only one of the mesh that was given, or ``default``.

    Args:
        given: the mesh as it was passed: of a DeviceMesh's slice of one axis it is that one.
        mesh: the mesh that it becomes.
        axis: what was said, or None.
        default: an axis that counts if the mesh has it.
    """
    names = axes_of(given) or mesh.axis_names
    if axis is None:
        axis = names[0] if len(names) == 1 else default
    require_axis(mesh, axis)
    return axis


def seen(tensor: torch.Tensor) -> torch.Tensor:
    """A view of all of ``tensor`` that can be marked by itself: ``view_as`` would mark both."""
    return tensor.unsqueeze(0).squeeze(0)
