# SPDX-License-Identifier: Apache-2.0
"""Pipelines: which stage each parameter of a model is on, and in which order stages work."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh, require_mesh, require_real
from spmdx._modules.marking import require_axis, require_module, require_on_device
from spmdx._modules.stages import put_on, staged
from spmdx._pipelines.choice import Choice, take_off
from spmdx._pipelines.held import tensors_of
from spmdx.errors import ShardingError, naming


def stages_by_cut(model: torch.nn.Module, cuts: Sequence[str], stages: int) -> dict[str, int]:
    order = {name: at for at, (name, _) in enumerate(model.named_modules())}
    for cut in cuts:
        if not isinstance(cut, str) or cut not in order:
            some = [name for name in order if name][:3]
            raise ShardingError(
                f"the cut {cut!r} names no module of the model. Expected names like "
                f"{', '.join(map(repr, some))}. Name the module with which a stage begins."
            )
    at = [order[cut] for cut in cuts]
    if at != sorted(set(at)) or 0 in at:
        raise ShardingError(
            f"the cuts {list(cuts)!r} are not in the order of the model's modules. Expected each "
            "behind the one before, and none at the model itself. Sort them, or give a dict from "
            "name patterns to stages."
        )
    if len(cuts) != stages - 1:
        raise ShardingError(
            f"there are {len(cuts)} cuts, and the mesh has {stages} stages. Expected one less than "
            "stages. Name a module for each stage but the first."
        )
    result = {}
    for name in tensors_of(model):
        module = order[name.rpartition(".")[0]]
        result[name] = sum(cut <= module for cut in at)
    return result


def _stages_by_pattern(
    model: torch.nn.Module, cuts: Mapping[str, int], stages: int
) -> dict[str, int]:
    names = list(tensors_of(model))
    for pattern, stage in cuts.items():
        if not fnmatch.filter(names, str(pattern)):
            raise ShardingError(
                f"the pattern {pattern!r} matches no parameter or buffer. Expected names like "
                f"{', '.join(map(repr, names[:3]))}. Mend the pattern, or drop it."
            )
        if isinstance(stage, bool) or not isinstance(stage, int) or not 0 <= stage < stages:
            raise ShardingError(
                f"the pattern {pattern!r} has stage {stage!r}. Expected a number from 0 to "
                f"{stages - 1}. Give it a stage of the mesh."
            )
    result = {}
    for name in names:
        matching = [stage for pattern, stage in cuts.items() if fnmatch.fnmatch(name, pattern)]
        if not matching:
            raise ShardingError(
                f"no pattern matches {name!r}. Expected a stage for every parameter and buffer. "
                "Add a pattern; a last one, '*', matches all that is left."
            )
        result[name] = matching[0]
    return result


def _stages(model: torch.nn.Module, cuts: Any, stages: int) -> dict[str, int]:
    if isinstance(cuts, Mapping):
        return _stages_by_pattern(model, cuts, stages)
    if isinstance(cuts, str | bytes) or not isinstance(cuts, Sequence):
        raise ShardingError(
            f"the cuts are {cuts!r}. Expected a list of names of modules, a dict from name "
            "patterns to stages, or None. Write ['layers.4'] for two stages."
        )
    return stages_by_cut(model, cuts, stages)


def pipeline(
    model: torch.nn.Module,
    mesh: Mesh | None = None,
    axis: str = "pipe",
    cuts: Sequence[str] | Mapping[str, int] | None = None,
    schedule: Any = "1f1b",
    chunks: int = 1,
) -> torch.nn.Module:
    """Cut a model into stages, which work on the microbatches of a training loop in turn.

    The loop stays as it is: one that accumulates gradients, as everybody writes it. What each
    backward pass ends is a microbatch. Losses, gradients and random numbers are those of one
    device.

    Where no cuts are given, they are chosen when the model is first called: each block is planned
    for these arguments, and the step that the cost model predicts to be the shortest wins, of those
    whose stages fit :func:`spmdx.set_memory_limit`. For that the model is called once more, without
    running anything. Stages then hold modules in the order in which they ran.

    Args:
        model: on device "spmdx". How its parameters are cut by other axes of the mesh stays.
        mesh: the devices; None means the global mesh.
        axis: of ``mesh``; each coordinate along it holds a stage, or ``chunks`` of them. It may
            cut no dim in the same step.
        cuts: names of the modules with which the second and later stages begin, in the order of
            the model's modules; or a dict from patterns of names of parameters and buffers to
            stages, of which the first that matches counts. A parameter that several modules share
            is where the first of them is. None: they are chosen.
        schedule: ``"gpipe"``, ``"1f1b"``, ``"interleaved:2"`` or ``"zb-h1"``; or a
            :class:`spmdx.pipelines.Schedule` for as many microbatches as each step has. It
            belongs to the model, also in copies and files; models that one step trains have the
            same.
        chunks: how many stages each coordinate holds: round robin, stage ``s`` is at ``s`` modulo
            the size of the axis.

    Returns:
        ``model`` itself.

    Raises:
        ShardingError: no axis of the mesh, cuts that name nothing or are too few, or an unknown
            schedule. Where cuts are chosen, at the first call: no stages that fit the memory
            limit, a forward pass that reads values, or a call within a transform of torch.func.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (2, 4), ("pipe", "data"))
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)).to("spmdx")
        >>> _ = spmdx.nn.pipeline(model, mesh, cuts=["1"])
        >>> for x in torch.ones(6, 4).to("spmdx").chunk(3): model(x).sum().backward()
        >>> model[0].weight.grad.cpu().shape
        torch.Size([8, 4])

    Source: GPipe, arXiv:1811.06965; PipeDream-2BW, arXiv:2006.09503; Megatron-LM,
    arXiv:2104.04473; Zero Bubble, arXiv:2401.10241.
    """
    with naming("pipeline"):
        require_module(model)
        devices = require_mesh(mesh)
        require_real(devices)
        require_axis(devices, axis)
        if isinstance(chunks, bool) or not isinstance(chunks, int) or chunks < 1:
            raise ShardingError(
                f"chunks is {chunks!r}. Expected how many stages a device holds, at least 1. "
                "Leave it out for one."
            )
        ranks = devices.shape()[axis]
        if ranks * chunks > _C.most_stages():
            raise ShardingError(
                f"chunks is {chunks}, and axis {axis!r} has {ranks} devices: {ranks * chunks} "
                f"stages. Expected at most {_C.most_stages()}. Pass a smaller number of chunks."
            )
        stages = None if cuts is None else _stages(model, cuts, ranks * chunks)
        text = _schedule(schedule, ranks, chunks)
        held = tensors_of(model)
        require_on_device(held)
        if stages is None:
            for name, tensor in held.items():  # what would fail when the stages are chosen
                staged(tensor, devices, 0, axis, name)
            Choice(devices, axis, text, chunks).put_on(model)
        else:
            put_on(held, devices, stages, axis, text)
            take_off(model)
    return model


def _schedule(schedule: Any, ranks: int, chunks: int) -> str:
    """The name of a schedule, or its text. Raises ShardingError where it does not fit."""
    if not isinstance(schedule, str):
        if not hasattr(schedule, "simulate"):
            raise ShardingError(
                f"the schedule is {schedule!r}. Expected a name, or a spmdx.pipelines.Schedule. "
                "Leave it out for '1f1b'."
            )
        text = str(schedule)
        table = _C.parse_schedule(text)
        table.check()
        if (table.ranks, table.chunks) != (ranks, chunks):
            raise ShardingError(
                f"the schedule is for {table.ranks} ranks of {table.chunks} stages. Expected "
                f"{ranks} ranks, the size of the axis, of {chunks} stages. Make it for these."
            )
        return text
    if schedule == "1f1b" and chunks > 1:
        return f"interleaved:{chunks}"
    _C.make_schedule(schedule, ranks, 1)
    _, _, own = schedule.partition(":")
    if int(own or 1) != chunks:
        raise ShardingError(
            f"the schedule {schedule!r} is for {own or 1} stages on each device, and chunks is "
            f"{chunks}. Expected the same. Pass chunks={own or 1}, or another schedule."
        )
    return schedule
