# SPDX-License-Identifier: Apache-2.0
"""Stages: which devices of a mesh hold a tensor or a module, by hand."""

from collections.abc import Mapping
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotate, annotation_of, handle_for, require_spmdx
from spmdx._annotate.mesh import Mesh, require_mesh, require_real
from spmdx._annotate.spec import at_stage
from spmdx._modules.marking import require_axis, require_on_device
from spmdx.errors import ShardingError, naming


def _require_stage(stage: Any, mesh: Mesh, axis: Any) -> None:
    require_axis(mesh, axis)
    if isinstance(stage, bool) or not isinstance(stage, int) or stage < 0:
        raise ShardingError(
            f"the stage is {stage!r}. Expected a number from 0 on. Write 0 for the first stage "
            f"along axis {axis!r}."
        )


def staged(
    tensor: torch.Tensor, mesh: Mesh, stage: int, axis: str, name: str | None
) -> "_C.ShardingHandle":
    """``stage``, beside how ``tensor`` was cut on ``mesh``."""
    require_spmdx(tensor)
    known = annotation_of(tensor)
    spec = known.spec if known is not None and known.mesh == mesh else (...,)
    return at_stage(handle_for(tensor, mesh, spec, name), (axis, stage))


def put_on(
    tensors: Mapping[str, torch.Tensor],
    mesh: Mesh,
    stages: Mapping[str, int],
    axis: str,
    schedule: str | None = None,
) -> None:
    """Puts tensors on their stages, beside how they were cut: all, or none if one cannot be.

    ``schedule``: its name or table; None: it stays.
    """
    handles = {n: staged(t, mesh, stages[n], axis, n) for n, t in tensors.items()}
    if schedule is not None:
        handles = {n: handle.scheduled(schedule) for n, handle in handles.items()}
    for name, handle in handles.items():
        annotate(tensors[name], handle)


def mark_stage(
    module_or_tensor: torch.nn.Module | torch.Tensor,
    mesh: Mesh | None = None,
    stage: int = 0,
    axis: str = "pipe",
) -> Any:
    """Say on which stage a tensor is, or all parameters and buffers of a module are.

    A stage is the devices of the mesh with one coordinate along ``axis``. An op that reads the
    tensor runs there, and what crosses from stage to stage is sent. It never changes a result.
    :func:`spmdx.nn.pipeline` marks a whole model, and orders its microbatches.

    Args:
        module_or_tensor: on device "spmdx". How its tensors are cut by other axes stays.
        mesh: the devices; None means the global mesh.
        stage: from 0 on. Stages beyond the size of the axis begin at its first devices again.
        axis: of ``mesh``, along which the stages lie; it may cut no dim in the same step.

    Returns:
        ``module_or_tensor`` itself.

    Raises:
        ShardingError: no tensor of the device, no axis of the mesh, or one that cuts a dim.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (2, 4), ("pipe", "data"))
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)).to("spmdx")
        >>> for stage, layer in enumerate(model): _ = spmdx.mark_stage(layer, mesh, stage)
        >>> model(torch.ones(4, 4).to("spmdx")).shape
        torch.Size([4, 2])
        >>> spmdx.get_sharding(model[1].weight).stage
        ('pipe', 1)

    Source: stages of Alpa (arXiv:2201.12023); JaxPP (arXiv:2412.14374) marks them likewise.
    """
    with naming("mark_stage"):
        devices = require_mesh(mesh)
        require_real(devices)
        _require_stage(stage, devices, axis)
        if isinstance(module_or_tensor, torch.nn.Module):
            held: dict[str, torch.Tensor] = dict(module_or_tensor.named_parameters())
            held |= dict(module_or_tensor.named_buffers())
            require_on_device(held)
            put_on(held, devices, dict.fromkeys(held, stage), axis)
        else:
            annotate(module_or_tensor, staged(module_or_tensor, devices, stage, axis, None))
    return module_or_tensor
