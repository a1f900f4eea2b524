# SPDX-License-Identifier: Apache-2.0
"""Modules: annotate many parameters at once."""

import fnmatch
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from spmdx.errors import ShardingError, naming
from spmdx.global_mesh import require_mesh
from spmdx.mesh import Mesh
from spmdx.sharding import mark_sharding


def shard_module(
    module: torch.nn.Module,
    mesh: Mesh | None = None,
    plan: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> torch.nn.Module:
    """Annotate parameters and buffers by the pattern of their names.

    Args:
        module: on device "spmdx".
        mesh: the devices; None means the global mesh.
        plan: from name patterns (as in the shell: ``*``, ``?``) to partition specs; the first
            pattern that matches a name counts.

    Returns:
        ``module`` itself.

    Raises:
        ShardingError: a pattern that matches nothing, a spec that does not fit.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("model")
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)).to("spmdx")
        >>> _ = spmdx.nn.shard_module(net, mesh, {"0.weight": ("model", None)})
        >>> net[0].weight.partition_spec
        PartitionSpec('model', None)
    """
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for pattern in plan:
        if not fnmatch.filter(named, pattern):
            with naming("shard_module"):
                raise ShardingError(
                    f"the pattern {pattern!r} matches no parameter or buffer. Expected names "
                    f"like {', '.join(map(repr, list(named)[:3]))}. Mend the pattern, or drop it."
                )
    for name, tensor in named.items():
        pattern = next((p for p in plan if fnmatch.fnmatchcase(name, p)), None)
        if pattern is not None:
            mark_sharding(tensor, mesh, plan[pattern])
    return module


def fully_shard(
    module: torch.nn.Module, mesh: Mesh | None = None, axis: str = "fsdp"
) -> torch.nn.Module:
    """Cut every parameter along one axis, on its largest dim that the axis divides.

    Args:
        module: on device "spmdx".
        mesh: the devices; None means the global mesh.
        axis: an axis of ``mesh``.

    Returns:
        ``module`` itself; parameters without such a dim are replicated. Whether they are gathered
        again for the backward pass is said by :func:`spmdx.set_gather_budget`.

    Raises:
        ShardingError: the mesh has no such axis.

    Example:
        >>> import torch, spmdx
        >>> net = torch.nn.Linear(8, 32).to("spmdx")
        >>> _ = spmdx.nn.fully_shard(net, spmdx.get_1d_mesh("fsdp"))
        >>> net.weight.partition_spec
        PartitionSpec('fsdp', None)

    Source: ZeRO, arXiv:1910.02054.
    """
    with naming("fully_shard"):
        mesh = require_mesh(mesh)
        if axis not in mesh.axis_names:
            raise ShardingError(
                f"{mesh!r} has no axis {axis!r}. Expected one of {mesh.axis_names}. "
                f"Pass axis={mesh.axis_names[0]!r}."
            )
    n = mesh.shape()[axis]
    for parameter in module.parameters():
        fits = [d for d, size in enumerate(parameter.shape) if size and size % n == 0]
        best = max(fits, key=lambda d: parameter.shape[d], default=None)
        spec = tuple(axis if d == best else None for d in range(parameter.dim()))
        mark_sharding(parameter, mesh, spec)
    return module
