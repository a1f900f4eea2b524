# SPDX-License-Identifier: Apache-2.0
"""Manual regions: a function written for one device of a mesh, with explicit collectives."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._annotate.regions import Region, current_region
from spmdx._annotate.spec import expanded
from spmdx._base.own_devices import NAMES
from spmdx._manual.batched_views import BatchedView
from spmdx._manual.region import reach, run_levels
from spmdx.errors import ShardingError, naming


def shard_map(
    fn: Callable[..., Any],
    mesh: Mesh | None,
    in_specs: Sequence[Any],
    out_specs: Any,
    axes: Sequence[str] | None = None,
) -> Callable[..., Any]:
    """Make a function of global tensors out of one that is written for a single device.

    Inside ``fn`` shapes are local, and what must cross devices is said by
    :mod:`spmdx.collectives`. Parameters may be arguments or be captured; those that are captured,
    or have the spec None, are the same on every device. All of it is differentiable.

    Args:
        fn: runs once, and is traced for every device; takes and returns tensors, or lists, tuples
            and dicts of tensors. Random numbers in it differ from device to device.
        mesh: the devices; None means the global mesh.
        in_specs: one partition spec for each argument: which axes cut which dim. Every dim must be
            a multiple of the axes that cut it. None: the argument is the same on every device. One
            ``...`` of a spec stands for the dims that its other entries leave over.
        out_specs: partition specs in the structure of what ``fn`` returns: along which axes the
            devices' results lie one behind the other. Along the others they must not vary.
        axes: the axes that are manual; None means all. Others are left to the planner.

    Returns:
        A function of the same arguments, as global tensors.

    Raises:
        ShardingError: ``fn`` is no function, or there is no such mesh or axis. Where the returned
            function is called: a spec that does not fit, sizes that do not divide, or a result
            that varies along an axis its spec does not name.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> def matmul(x, w):  # x: f32[4, 8], w: f32[8, 5]
        ...     return spmdx.collectives.all_reduce(x @ w, "model")
        >>> specs = (("data", "model"), ("model", None))
        >>> y = spmdx.shard_map(matmul, mesh, specs, ("data", None))
        >>> y(torch.ones(16, 16).to("spmdx"), torch.ones(16, 5).to("spmdx"))[0].tolist()
        [16.0, 16.0, 16.0, 16.0, 16.0]

    Source: the semantics are those of JAX's shard_map (JEP 14273) with checked replication.
    """
    with naming("shard_map"):
        if not callable(fn):
            raise ShardingError(
                f"fn is a {type(fn).__name__}. Expected a function of tensors. Write it first: "
                "spmdx.shard_map(fn, mesh, in_specs, out_specs)."
            )
        mesh = require_mesh(mesh)
        names = _manual_axes(mesh, axes)

    @functools.wraps(fn)
    def mapped(*args: Any) -> Any:
        with naming("shard_map"):
            region, own = _region(mesh, names)
            specs = _per_argument(in_specs, args)
            slots: list[BatchedView] = []
            shells = [
                _enter(region, own, *pair, slots, f"argument {i}") for i, pair in enumerate(specs)
            ]

        def body(*local: torch.Tensor) -> Any:
            found = iter(local)
            result = fn(*(_refill(shell, found) for shell in shells))
            with naming("shard_map"):
                return _leave(region, own, result, out_specs, "the result")

        tensors, leads = [u.tensor for u in slots], [u.lead for u in slots]
        return run_levels(region, body, tensors, leads, own)

    return mapped


def _manual_axes(mesh: Mesh, axes: Sequence[str] | None) -> tuple[str, ...]:
    chosen = mesh.axis_names if axes is None else (axes,) if isinstance(axes, str) else axes
    if not isinstance(chosen, tuple | list) or not chosen:
        raise ShardingError(
            f"axes is {axes!r}. Expected at least one axis of {mesh!r}. Leave axes out for all "
            "of them."
        )
    for axis in chosen:
        if axis not in mesh.axis_names:
            raise ShardingError(
                f"{axis!r} is no axis of {mesh!r}. Expected some of "
                f"{', '.join(map(repr, mesh.axis_names))}. Leave axes out for all of them."
            )
    return tuple(axis for axis in mesh.axis_names if axis in chosen)


def _region(mesh: Mesh, names: tuple[str, ...]) -> tuple[Region, tuple[str, ...]]:
    """The region to open, within the one this call is in, and the axes that it adds."""
    outer = current_region()
    if outer is None:
        return Region(mesh, names, {}), names
    if outer.mesh != mesh or set(outer.axes) & set(names):
        raise ShardingError(
            f"a manual region over {', '.join(map(repr, names))} of {mesh!r} is opened within one "
            f"over {', '.join(map(repr, outer.axes))} of {outer.mesh!r}. Expected other axes of "
            "the same mesh. Say with axes=(…) which axes each region makes manual."
        )
    return Region(mesh, outer.axes + names, dict(outer.coordinates)), names


def _per_argument(in_specs: Sequence[Any], args: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    if not isinstance(in_specs, tuple | list) or len(in_specs) != len(args):
        raise ShardingError(
            f"in_specs is {in_specs!r}, {_length(in_specs)} specs for {len(args)} arguments. "
            "Expected one spec for each argument. Write (('data', None), None): a tuple of specs."
        )
    return list(zip(args, in_specs, strict=True))


# ---- structures of tensors ---------------------------------------------------------------------


class _Slot:
    """Stands for a tensor in a structure."""


def _children(value: Any, spec: Any, name: str) -> Iterator[tuple[Any, Any, Any, str]]:
    """Key, value, spec and name of everything in a list, tuple or dict."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    kind = dict if isinstance(value, dict) else tuple | list
    if spec is not None:
        known = list(spec) if isinstance(spec, dict) else range(_length(spec))
        if not isinstance(spec, kind) or list(keys) != list(known):
            raise ShardingError(
                f"{name} is a {type(value).__name__} of {len(value)}, its spec is {spec!r}. "
                "Expected specs in the same structure. Write a spec for each tensor of it, or "
                "None where all of them are the same on all devices."
            )
    for key in keys:
        yield key, value[key], None if spec is None else spec[key], f"{name}[{key!r}]"


def _length(spec: Any) -> int:
    return len(spec) if isinstance(spec, tuple | list) else 0


def _rebuilt(value: Any, parts: list[tuple[Any, Any]]) -> Any:
    if isinstance(value, dict):
        return dict(parts)
    items = [part for _, part in parts]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _refill(shell: Any, tensors: Iterator[torch.Tensor]) -> Any:
    if isinstance(shell, _Slot):
        return next(tensors)
    if isinstance(shell, tuple | list | dict):
        keys = list(shell) if isinstance(shell, dict) else range(len(shell))
        return _rebuilt(shell, [(key, _refill(shell[key], tensors)) for key in keys])
    return shell


# ---- in and out --------------------------------------------------------------------------------


def _axes_of(spec: Any, rank: int, own: tuple[str, ...], mesh: Mesh, name: str) -> list[list[str]]:
    """The axes that cut each dim, major first."""
    if spec is None:
        return [[] for _ in range(rank)]
    if isinstance(spec, tuple | list):
        spec = expanded(spec, rank, name)
    if not isinstance(spec, tuple | list) or len(spec) != rank:
        raise ShardingError(
            f"the partition spec of {name} is {spec!r}, its rank is {rank}. Expected one entry "
            f"for each dim. Write {(own[0],) + (None,) * (rank - 1) if rank else ()!r}."
        )
    dims, seen = [], []
    for entry in spec:
        axes = list(entry) if isinstance(entry, tuple | list) else [] if entry is None else [entry]
        axes = [_name(axis, mesh, name) for axis in axes]
        seen += axes
        dims.append(axes)
    for axis in seen:
        if axis not in own or seen.count(axis) > 1:
            what = "names twice" if axis in own else "names, but the region does not make manual,"
            raise ShardingError(
                f"the partition spec {spec!r} of {name} {what} the axis {axis!r}. Expected each "
                f"of {', '.join(map(repr, own))} at most once. Leave it out."
            )
    return dims


def _name(axis: Any, mesh: Mesh, name: str) -> str:
    names = mesh.axis_names
    if isinstance(axis, int) and not isinstance(axis, bool) and 0 <= axis < len(names):
        return names[axis]
    if not isinstance(axis, str) or axis not in names:
        raise ShardingError(
            f"the partition spec of {name} names {axis!r}, which is no axis of {mesh!r}. Expected "
            f"one of {', '.join(map(repr, names))}. Write None for a dim that is not cut."
        )
    return axis


def _check_device(value: torch.Tensor, name: str) -> None:
    if value.device.type not in NAMES:
        raise ShardingError(
            f"{name} is on device '{value.device}'. Expected a tensor on device 'spmdx'. "
            'Move it there first: tensor.to("spmdx").'
        )


def _enter(
    region: Region, own: tuple[str, ...], value: Any, spec: Any, slots: list[BatchedView], name: str
) -> Any:
    """``value`` with its tensors replaced by slots; ``slots`` gets what belongs into them."""
    if isinstance(value, torch.Tensor):
        _check_device(value, name)
        slots.append(_unfold(region, own, value, spec, name))
        return _Slot()
    if isinstance(value, tuple | list | dict):
        inner = _children(value, spec, name)
        return _rebuilt(value, [(k, _enter(region, own, v, s, slots, n)) for k, v, s, n in inner])
    if spec is not None:
        raise ShardingError(
            f"{name} is a {type(value).__name__} and has the spec {spec!r}. Expected None for "
            "what is no tensor. Write None."
        )
    return value


def _unfold(
    region: Region, own: tuple[str, ...], tensor: torch.Tensor, spec: Any, name: str
) -> BatchedView:
    dims = _axes_of(spec, tensor.dim(), own, region.mesh, name)
    value = BatchedView(region.mesh, region.axes, tensor, [], list(own))
    for dim, axes in enumerate(dims):
        count = 1
        for axis in axes:
            count *= region.mesh.shape()[axis]
        if tensor.shape[dim] % count:
            raise ShardingError(
                f"dim {dim} of {name} has the size {tensor.shape[dim]}, which {count} devices "
                f"along {', '.join(map(repr, axes))} cannot share evenly. Expected a multiple: in "
                "a manual region every device has the same shape. Pad the tensor to "
                f"{-(-tensor.shape[dim] // count) * count}, or do not cut the dim."
            )
        for axis in axes:
            value = value.split(axis, dim)
    return value.pinned() if value.lead else value


def _leave(region: Region, own: tuple[str, ...], value: Any, spec: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        _check_device(value, name)
        dims = _axes_of(spec, value.dim(), own, region.mesh, name)
        return reach(region, value, lambda x: _fold(x, own, dims, name))
    if isinstance(value, tuple | list | dict):
        inner = _children(value, spec, name)
        return _rebuilt(value, [(k, _leave(region, own, v, s, n)) for k, v, s, n in inner])
    return value


def _fold(x: BatchedView, own: tuple[str, ...], dims: list[list[str]], name: str) -> BatchedView:
    """The global tensor: the parts along the axes of each dim, one behind the other."""
    named = [axis for axes in dims for axis in axes]
    for axis in own:
        if axis in x.lead and axis not in named:
            raise ShardingError(
                f"{name} may differ between the devices along {axis!r}, which its out_spec does "
                f"not name. Expected one value. Reduce or gather it over {axis!r} first, or name "
                f"{axis!r} in the spec to keep every device's part."
            )
    for axis in named:
        x = x.vary(axis)
    x = x.pinned() if x.lead else x
    for dim, axes in enumerate(dims):
        for axis in reversed(axes):
            x = x.join(axis, dim)
    return x


__all__ = ["shard_map"]
