# SPDX-License-Identifier: Apache-2.0
"""One entry of torch's module_db on a mesh: batch and parameters sharded, against plain PyTorch."""

import copy
import functools
import random
from functools import partial
from typing import Any

import spmdx
import torch
from settings import Setting
from torch import nn
from torch.nn.parameter import is_lazy
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree
from verdict import (
    NUDGED,
    SEED,
    SIXTEEN_BITS,
    Verdict,
    cut,
    draws_numbers,
    gradients,
    mesh_of,
    nudged,
    on_cpu,
    worse,
)

MODES = ("batch", "parameters", "both")
MOST_INPUTS = 64  # a draw of them where the samples are limited: one entry has 1,714


def entries(dtype: torch.dtype = torch.float32) -> list[Any]:
    """All entries of module_db; in 16 bits, those that PyTorch has kernels for tell themselves."""
    wanted = torch.float32 if dtype in SIXTEEN_BITS else dtype
    return [info for info in module_db if wanted in info.dtypes]


def name_of(info: Any) -> str:
    """As ``"nn.BatchNorm2d"``."""
    return info.name


def run(
    module: nn.Module,
    inputs: Any,
    device: str,
    mesh: Any = None,
    mode: str = "",
    nudge: int | None = None,
) -> Any:
    """Results and buffers, and gradients of inputs and parameters, on the CPU."""
    module = copy.deepcopy(module).to(device)
    if mode in ("parameters", "both"):
        for parameter in module.parameters():
            cut(parameter, mesh)
    leaves, structure = pytree.tree_flatten((inputs.args, inputs.kwargs))
    placed, leaf_tensors = [], []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
            if mode in ("batch", "both"):
                cut(leaf, mesh)
            leaf_tensors.append(leaf)
        placed.append(leaf)
    args, kwargs = pytree.tree_unflatten(placed, structure)
    torch.manual_seed(SEED)
    outputs = [o for o in pytree.tree_leaves(module(*args, **kwargs)) if o is not None]
    found = gradients(outputs, [*leaf_tensors, *module.parameters()], device, nudge)
    if device == "spmdx":
        spmdx.mark_step()
    results = [*outputs, *module.buffers()]
    return [on_cpu(o) for o in results], [on_cpu(g) for g in found]


def judge(
    info: Any,
    setting: Setting,
    at=lambda *where: None,
    dtype: torch.dtype = torch.float32,
) -> Verdict:
    """Runs an entry in training and evaluation, each input in each mode.

    Args:
        info: the entry.
        setting: the mesh; dim 0 is cut over its first axis.
        at: is told where it is.
        dtype: of parameters and inputs.
    """
    verdict = Verdict(name_of(info))
    mesh = mesh_of(setting)
    for training in (True, False):
        torch.manual_seed(0)
        drawn = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        taken = [(n, sample) for n, sample in enumerate(drawn) if sample.forward_input is not None]
        if setting.most_samples is not None and len(taken) > MOST_INPUTS:
            taken = random.Random(len(taken)).sample(taken, MOST_INPUTS)
        for number, sample in taken:
            judge_sample(info, sample, training, number, mesh, at, verdict, dtype)
    return verdict


def excuse_of(module: nn.Module, inputs: Any, wanted: Any, drawn: bool) -> Any:
    """What the oracle asks where 16-bit numbers differ: see :func:`worse`."""

    device = "spmdx" if drawn else "cpu"

    @functools.cache
    def exact() -> Any:
        doubled = [x.detach().double().requires_grad_(x.requires_grad) for x in short_ones(inputs)]
        return run(copy.deepcopy(module).double(), with_short_ones(inputs, doubled), device)

    @functools.cache
    def eager() -> list[Any]:
        runs = [wanted]
        for seed in range(NUDGED):
            twin = copy.deepcopy(module)
            for parameter in twin.parameters():
                parameter.data = nudged(parameter.data, seed)
            near = [nudged(x, seed) for x in short_ones(inputs)]
            runs.append(run(twin, with_short_ones(inputs, near), device, nudge=seed))
        return runs

    return lambda found: worse(found, eager(), exact())


def short_ones(inputs: Any) -> list[torch.Tensor]:
    """The tensors of 16 bits among the arguments."""
    return [x for x in pytree.tree_leaves((inputs.args, inputs.kwargs)) if is_short(x)]


def with_short_ones(inputs: Any, tensors: list[torch.Tensor]) -> Any:
    """The arguments with these in place of them."""
    left, twin = iter(tensors), copy.copy(inputs)
    twin.args, twin.kwargs = pytree.tree_map(
        lambda x: next(left) if is_short(x) else x, (inputs.args, inputs.kwargs)
    )
    return twin


def is_short(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in SIXTEEN_BITS


def initialize(module: nn.Module, inputs: Any) -> None:
    """Gives a lazy module its parameters."""
    if any(is_lazy(t) for t in (*module.parameters(), *module.buffers())):
        module(*inputs.args, **inputs.kwargs)


def judge_sample(info, sample, training, number, mesh, at, verdict, dtype) -> None:
    torch.manual_seed(0)
    constructor = sample.constructor_input
    module = info.module_cls(*constructor.args, **constructor.kwargs).train(training)
    module, inputs = module.to(dtype), sample.forward_input
    initialize(module, inputs)
    try:
        drawn = draws_numbers(partial(run, module, inputs, "cpu"))
    except Exception:  # what PyTorch refuses is no yardstick
        return
    wanted = run(module, inputs, "spmdx" if drawn else "cpu")
    excuse = excuse_of(module, inputs, wanted, drawn) if dtype in SIXTEEN_BITS else None
    for mode in MODES:
        where = f"sample {number}, {'training' if training else 'evaluation'}, {mode} sharded"
        at(where)
        verdict.hold(where, partial(run, module, inputs, "spmdx", mesh, mode), wanted, excuse)
