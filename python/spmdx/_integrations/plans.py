# SPDX-License-Identifier: Apache-2.0
"""What a frame's options say of a mesh: how batches, parameters and their optimizer state lie."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from spmdx._annotate.annotation import annotation_of
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.sharding import mark_sharding
from spmdx._modules.zero import state_like_parameters
from spmdx.errors import ShardingError
from spmdx.nn import fully_shard, shard_module

_OF_BATCHES = ("data", "fsdp")


def batch_entry(mesh: Mesh, axes: Sequence[str] | None) -> tuple[Any, ...]:
    """The partition spec of dim 0 of a batch.

    Args:
        mesh: the devices.
        axes: those that cut it; None: ``data`` and ``fsdp``, where the mesh has them.

    Raises:
        ShardingError: the mesh has no such axis.
    """
    names = mesh.axis_names
    if isinstance(axes, str):
        axes = (axes,)
    wanted = tuple(n for n in names if n in _OF_BATCHES) if axes is None else tuple(axes)
    for axis in wanted:
        if axis not in names:
            raise ShardingError(
                f"batch_axes has {axis!r}, and {mesh!r} has no such axis. Expected some of "
                f"{names}. Name those that cut the batch."
            )
    if not wanted:
        return ()
    return (wanted if len(wanted) > 1 else wanted[0],)


def apply_plan(module: torch.nn.Module, mesh: Mesh, plan: Any) -> None:
    """Annotate the parameters: "fsdp", "auto", a dict from patterns to specs, or nothing."""
    if plan is None:
        return
    if isinstance(plan, Mapping):
        shard_module(module, mesh, plan)
    elif plan == "fsdp":
        fully_shard(module, mesh, "fsdp")
    elif plan == "auto":
        for part in _with_plans(module):
            shard_module(part, mesh, "auto")
    else:
        raise ShardingError(
            f"the plan is {plan!r}. Expected 'fsdp', 'auto', or a dict from patterns of names to "
            "partition specs. Write {'*.weight': ('model', None)}."
        )


def _with_plans(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The outermost modules that bring a plan; the module itself where none does."""
    found: list[torch.nn.Module] = []
    pending = [module]
    while pending:
        each = pending.pop(0)
        if isinstance(getattr(each, "tp_plan", None), Mapping):
            found.append(each)
        else:
            pending.extend(each.children())
    return found or [module]


def lie_as_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Mark what an optimizer holds of a parameter, and has its shape, as the parameter is."""
    for parameter, value in state_like_parameters(optimizer):
        known = annotation_of(parameter)
        if known is not None:
            mark_sharding(value, known.mesh, known.spec)
