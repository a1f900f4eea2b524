# SPDX-License-Identifier: Apache-2.0
"""fully_shard: how the parameters of a module lie, and what happens around its forward pass."""

import dataclasses
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh
from spmdx._base.arguments import require_shape
from spmdx._base.entries import entry_of
from spmdx._modules.auto_wrap import wrapped_by
from spmdx._modules.forward_pass import Around
from spmdx._modules.fsdp_options import (
    Precision,
    ids_of,
    keeps_gathered,
    placed,
    precision_of,
    refuse_options,
    require_sums,
)
from spmdx._modules.marking import added, beside, cut_along, mark_all, require_axis
from spmdx.errors import ShardingError

_NOTE = "_fully_sharded_along"  # the attribute of a module on which fully_shard was called


@dataclasses.dataclass
class Request:
    """The options of a call of fully_shard, as they were given."""

    reshard_after_forward: Any = None
    mp_policy: Any = None
    ignored_params: Any = ()
    shard_placement_fn: Any = None
    auto_wrap_policy: Any = None
    extra_data_axis: Any = None
    others: dict[str, Any] = dataclasses.field(default_factory=dict)


def fully_shard_as(module: torch.nn.Module, mesh: Mesh, axis: str, request: Request) -> None:
    """What :func:`spmdx.fully_shard` does; everything is checked before anything is marked."""
    refuse_options(request.others)
    if request.extra_data_axis is not None:
        require_axis(mesh, request.extra_data_axis, "extra_data_axis")
        if request.extra_data_axis == axis:
            raise ShardingError(
                f"extra_data_axis is {axis!r}, which cuts the parameters. Expected another axis "
                "of the mesh, one that cuts the batch alone. Leave it out."
            )
    precision = precision_of(request.mp_policy)
    gathered = axis if keeps_gathered(request.reshard_after_forward) else None
    ignored = ids_of(request.ignored_params)
    named = {n: p for n, p in module.named_parameters() if id(p) not in ignored}
    for name, parameter in named.items():
        require_shape(parameter, name)
    require_sums(precision, named)
    groups = [*wrapped_by(request.auto_wrap_policy, module), module]
    mine = _unsaid(module, mesh, axis)
    wanted = {n: p for n, p in named.items() if id(p) in mine}
    place = request.shard_placement_fn
    chosen = {} if place is None else placed(wanted, place)
    specs = {name: _spec(p, mesh, axis, chosen.get(name)) for name, p in wanted.items()}
    mark_all(named, mesh, specs)
    for each in groups:
        _surround(each, precision, gathered, ignored)
        vars(each)[_NOTE] = (mesh, axis)
    if request.extra_data_axis is not None:
        _around(module, precision, gathered).batch = (mesh, (request.extra_data_axis, axis))


def _unsaid(module: torch.nn.Module, mesh: Mesh, axis: str) -> set[int]:
    """Who the parameters are that no call on a module within has cut along the same axis."""
    said: set[int] = set()
    for inner in module.modules():
        if inner is not module and vars(inner).get(_NOTE) == (mesh, axis):
            said.update(map(id, inner.parameters()))
    return {id(p) for p in module.parameters()} - said


def _surround(
    module: torch.nn.Module, precision: Precision, gathered: str | None, ignored: set[int]
) -> None:
    """Hooks for the parameters that belong to no module within; those of an earlier call go."""
    inner = [n for n, m in module.named_modules() if n and _NOTE in vars(m)]
    own = {n: m for n, m in module.named_modules() if not _lies_in(n, inner)}
    for each in own.values():
        _forget(each)
    if not precision.changes and gathered is None:
        return
    names = [
        name
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if id(parameter) not in ignored and not _lies_in(name, inner)
    ]
    replaced = precision.parameters or precision.reduced or gathered
    around = Around(tuple(names) if replaced else (), precision, gathered)
    around.put_on(module)
    for path, each in own.items():
        part = around.parted(path)
        if path and part.names:
            part.put_on(each)


def _lies_in(name: str, paths: list[str]) -> bool:
    return any(name == path or name.startswith(f"{path}.") for path in paths)


def _forget(module: torch.nn.Module) -> None:
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key, hook in list(hooks.items()):
            if isinstance(getattr(hook, "__self__", None), Around):
                del hooks[key]


def _around(module: torch.nn.Module, precision: Precision, gathered: str | None) -> Around:
    """The hooks of ``module``, which are made where it has none."""
    for hook in module._forward_pre_hooks.values():
        found = getattr(hook, "__self__", None)
        if isinstance(found, Around):
            return found
    made = Around((), precision, gathered)
    made.put_on(module)
    return made


def _spec(parameter: torch.Tensor, mesh: Mesh, axis: str, dim: int | None) -> tuple[Any, ...]:
    """The spec that cuts ``dim``, or the longest dim whose parts ``axis`` divides.

    What other axes cut stays so; dims that they leave whole come first.
    """
    cut = beside(parameter, mesh, axis)
    if dim is None:
        return cut_along(list(map(entry_of, cut)), parameter.shape, mesh, axis)
    return added(cut, dim, axis)
