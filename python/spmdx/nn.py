# SPDX-License-Identifier: Apache-2.0
"""Modules: annotate many parameters at once."""

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from spmdx._annotate.annotation import annotate, handle_for
from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._annotate.spec import cutting
from spmdx._base.arguments import require_shape
from spmdx._base.own_devices import NAMES
from spmdx._modules.fsdp_options import ids_of, placed, refuse_options
from spmdx._modules.fsdp_plan import AXIS, brings_fsdp_plan, with_fsdp
from spmdx._modules.tp_plan import specs_of
from spmdx.errors import ShardingError, naming


def _require_module(module: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ShardingError(
            f"the first argument is a {type(module).__name__}. Expected a torch.nn.Module. Pass a "
            "model or a part of one."
        )


def _mark_all(
    tensors: Mapping[str, torch.Tensor], mesh: Mesh | None, specs: Mapping[str, Any]
) -> None:
    """Marks those that have a spec: all of them, or none where one cannot be marked."""
    for name in specs:
        tensor = tensors[name]
        if tensor.device.type not in NAMES:
            raise ShardingError(
                f"{name} is on device '{tensor.device}'. Expected a module on device 'spmdx'. "
                'Move it there first: module.to("spmdx").'
            )
    handles = {name: handle_for(tensors[name], mesh, spec, name) for name, spec in specs.items()}
    for name, handle in handles.items():
        annotate(tensors[name], handle)


def _require_plan(plan: Any, names: Sequence[str]) -> None:
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


def shard_module(
    module: torch.nn.Module,
    mesh: Mesh | None = None,
    plan: Mapping[str, Sequence[Any]] | str = MappingProxyType({}),
    axis: str = "model",
) -> torch.nn.Module:
    """Annotate parameters and buffers by the pattern of their names.

    Args:
        module: on device "spmdx".
        mesh: the devices; None means the global mesh.
        plan: from name patterns (as in the shell: ``*``, ``?``) to partition specs; the first
            pattern that matches a name counts. ``"auto"`` is what a model of the transformers
            library brings: its tensor parallel plan along ``axis``; and where the mesh has an axis
            ``fsdp``, its fully sharded one along that.
        axis: the axis of the mesh that ``"auto"`` cuts along in tensor parallel.

    Returns:
        ``module`` itself.

    Raises:
        ShardingError: a pattern that matches nothing, a spec that does not fit, a tensor that it
            is for on another device; a model that brings no plan. Nothing is marked then.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("model")
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)).to("spmdx")
        >>> _ = spmdx.nn.shard_module(net, mesh, {"0.weight": ("model", None)})
        >>> net[0].weight.partition_spec
        PartitionSpec('model', None)
    """
    with naming("shard_module"):
        _require_module(module)
        if isinstance(plan, str):
            _shard_by_its_plan(module, require_mesh(mesh), plan, axis)
            return module
        named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        _require_plan(plan, list(named))
        found = {name: [p for p in plan if fnmatch.fnmatchcase(name, p)] for name in named}
        _mark_all(named, mesh, {name: plan[p[0]] for name, p in found.items() if p})
    return module


def _shard_by_its_plan(module: torch.nn.Module, mesh: Mesh, plan: str, axis: str) -> None:
    if plan != "auto":
        raise ShardingError(
            f"the plan is {plan!r}. Expected 'auto', or a dict from patterns of names to partition "
            "specs. Write {'*.weight': ('data', None)}."
        )
    named = dict(module.named_parameters(remove_duplicate=False))
    is_fsdp = axis != AXIS and AXIS in mesh.axis_names and brings_fsdp_plan(module)
    if not is_fsdp:
        _require_axis(mesh, axis)
    specs = specs_of(module, axis) if axis in mesh.axis_names else {}
    if is_fsdp:
        specs = with_fsdp(module, specs, mesh.shape()[AXIS])
    _mark_all(named, mesh, specs)


def _require_axis(mesh: Mesh, axis: str) -> None:
    names = mesh.axis_names
    if axis not in names:
        mend = f"Pass axis={names[0]!r}" if names else "Give the mesh an axis"
        raise ShardingError(f"{mesh!r} has no axis {axis!r}. Expected one of {names}. {mend}.")


def fully_shard(
    module: torch.nn.Module,
    mesh: Mesh | None = None,
    axis: str = "fsdp",
    *,
    shard_placement_fn: Callable[[torch.nn.Parameter], Any] | None = None,
    ignored_params: Iterable[torch.nn.Parameter] = (),
    **options: Any,
) -> torch.nn.Module:
    """Cut every parameter along one axis, on its largest dim that the axis divides.

    Args:
        module: on device "spmdx".
        mesh: the devices; None means the global mesh.
        axis: an axis of ``mesh``.
        shard_placement_fn: gives the placement of a parameter, ``Shard(dim)``, or None for the dim
            that is chosen here.
        ignored_params: parameters that are not marked.
        options: others of PyTorch's ``fully_shard``, with their defaults. Any other value is
            refused with what to write instead.

    Returns:
        ``module`` itself; parameters without such a dim are replicated. Whether they are gathered
        again for the backward pass is said by :func:`spmdx.set_gather_budget`.

    Raises:
        ShardingError: the mesh has no such axis, a parameter has no shape yet or is on another
            device, a placement or an option is not known. Nothing is marked then.

    Example:
        >>> import torch, spmdx
        >>> net = torch.nn.Linear(8, 32).to("spmdx")
        >>> _ = spmdx.nn.fully_shard(net, spmdx.get_1d_mesh("fsdp"))
        >>> net.weight.partition_spec
        PartitionSpec('fsdp', None)

    Source: ZeRO, arXiv:1910.02054.
    """
    with naming("fully_shard"):
        _require_module(module)
        mesh = require_mesh(mesh)
        _require_axis(mesh, axis)
        refuse_options(options)
        named, n = dict(module.named_parameters()), mesh.shape()[axis]
        ignored = ids_of(ignored_params)
        named = {name: p for name, p in named.items() if id(p) not in ignored}
        for name, parameter in named.items():
            require_shape(parameter, name)
        wanted = {} if shard_placement_fn is None else placed(named, shard_placement_fn, axis)
        specs = {name: wanted.get(name) or _cut(p.shape, axis, n) for name, p in named.items()}
        _mark_all(named, mesh, specs)
    return module


def _cut(shape: Sequence[int], axis: str, n: int) -> tuple[str | None, ...]:
    """The spec that cuts the largest dim which ``n`` divides."""
    fits = [dim for dim, size in enumerate(shape) if size and size % n == 0]
    best = max(fits, key=lambda dim: shape[dim], default=None)
    return cutting(len(shape), best, axis)
