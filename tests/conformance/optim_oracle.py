# SPDX-License-Identifier: Apache-2.0
"""One optimizer of optim_db on a mesh: parameters and state sharded, against plain PyTorch."""

import copy
from functools import partial
from typing import Any

import spmdx
import torch
from settings import Setting
from torch.testing._internal.common_optimizers import optim_db
from verdict import Verdict, cut, mesh_of, on_cpu

STEPS = 4
LOOSE = {"Muon": 2e-2}  # it orthogonalises in bfloat16
SHAPES = ((8, 6), (5, 3), (7,), ())  # some divide by the devices, some do not
# Not a device's kernels, but the order of a step: what optimizers are asked to do with a step.
FLAGS = ({"foreach": False}, {"foreach": True}, {"fused": True}, {"capturable": True})


def entries(dtype: torch.dtype = torch.float32) -> list[Any]:
    """All optimizers of optim_db, in f32."""
    return list(optim_db) if dtype == torch.float32 else []


def name_of(info: Any) -> str:
    """As ``"AdamW"``."""
    return info.optim_cls.__name__


def flags_of(info: Any) -> list[dict[str, bool]]:
    """The implementations that this optimizer has."""
    known = set(info.supported_impls) | {"foreach"}
    return [{}] + [flag for flag in FLAGS if next(iter(flag)) in known]


def run(info: Any, options: dict[str, Any], device: str, mesh: Any = None) -> Any:
    """Parameters and state after some steps, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    shapes = [s for s in SHAPES if len(s) == 2] if name_of(info) == "Muon" else SHAPES
    parameters = []
    for shape in shapes:
        parameter = torch.randn(shape, generator=generator).to(device).requires_grad_()
        if mesh is not None:
            cut(parameter, mesh)
        parameters.append(parameter)
    optimizer = info.optim_cls(parameters, **copy.deepcopy(options))
    target = [torch.randn(p.shape, generator=generator).to(device) for p in parameters]

    def closure():
        optimizer.zero_grad()
        loss = sum(((p - t) ** 2).sum() * 0.5 for p, t in zip(parameters, target, strict=True))
        loss.backward()
        return loss

    losses = []
    for _ in range(STEPS):
        losses.append(closure() if not info.step_requires_closure else None)
        stepped = optimizer.step(closure if info.step_requires_closure else None)
        losses[-1] = stepped if losses[-1] is None else losses[-1]
        if device == "spmdx":
            spmdx.mark_step()
    state = [
        value
        for p in parameters
        for _, value in sorted(optimizer.state[p].items())
        if isinstance(value, torch.Tensor)
    ]
    return [on_cpu(x) for x in [*losses, *parameters]], [on_cpu(x) for x in state]


def judge(
    info: Any, setting: Setting, at=lambda *where: None, dtype: torch.dtype = torch.float32
) -> Verdict:
    """Runs an optimizer with every set of options and every implementation that it has.

    Args:
        info: the entry.
        setting: the mesh; dim 0 is cut over its first axis.
        at: is told where it is.
        dtype: of the parameters, f32.
    """
    verdict = Verdict(name_of(info))
    mesh = mesh_of(setting)
    for number, drawn in enumerate(info.optim_inputs_func(device="cpu")):
        for flags in flags_of(info):
            judge_options(info, {**drawn.kwargs, **flags}, number, mesh, at, verdict)
    return verdict


def judge_options(info, options, number, mesh, at, verdict) -> None:
    where = f"options {number}, {options}"
    at(where)
    try:
        wanted = run(info, options, "cpu")
    except Exception:  # what PyTorch refuses is no yardstick
        return
    close = LOOSE.get(name_of(info))
    verdict.hold(where, partial(run, info, options, "spmdx", mesh), wanted, close=close)
