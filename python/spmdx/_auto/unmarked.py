# SPDX-License-Identifier: Apache-2.0
"""Marks of a model and of what its optimizer holds: taken off, and what lay by them moved."""

from collections.abc import Iterable, Iterator

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotate, handle_for, is_state, on_stage_of
from spmdx._annotate.classes import plain_class
from spmdx._annotate.mesh import Mesh
from spmdx._modules.zero import forget, optimizers_of
from spmdx._pipelines.choice import take_off
from spmdx._pipelines.held import tensors_of
from spmdx._program.memory_limit import without_memory_limit

AT_A_TIME = 1 << 28  # bytes that are gathered before they go on to their stages


def unmark(tensors: Iterable[torch.Tensor]) -> None:
    """They have no annotations, and the classes of tensors that have none."""
    for tensor in tensors:
        if _C.is_lazy(tensor):
            _C.annotate(tensor, None, is_state(tensor))
            tensor.__class__ = plain_class(type(tensor))


def unmark_program(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> dict[torch.Tensor, bool]:
    """What was said of a model, its gradients and what its optimizers hold is said no longer.

    Returns:
        Of these, the tensors that lie on devices, and whether in pieces.
    """
    for known in optimizers_of(model.parameters()):
        forget(known)
    take_off(model)
    held = [part for t, parts in _held(model, optimizer) for part in [t, *parts]]
    held = list(filter(_C.is_lazy, held))
    if any(_C.annotation(part) is not None for part in held):
        with without_memory_limit():
            _C.flush()  # what was recorded was recorded with these marks
    unmark(held)
    at = [(part, _C.sharding_of(part)) for part in held]
    return {part: any(lying.entries) for part, lying in at if lying is not None}


def move(
    lying: dict[torch.Tensor, bool],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    mesh: Mesh,
) -> None:
    """What lies on devices lies as its marks say, or those of the parameter that it belongs to."""
    if not lying:
        return
    wanted = dict[torch.Tensor, _C.ShardingHandle]()
    for tensor, belonging in _held(model, optimizer):
        for part in [tensor, *belonging]:
            if part in lying:
                wanted[part] = _C.annotation(part) or _like(tensor, part, mesh)
    unmarked = [part for part in lying if _C.annotation(part) is None]
    with without_memory_limit():
        _gather([t for t in lying if lying[t] and wanted[t].place], wanted, mesh)
        for part, handle in wanted.items():
            annotate(part, handle)
        _C.flush()
    unmark(unmarked)


def _like(tensor: torch.Tensor, part: torch.Tensor, mesh: Mesh) -> "_C.ShardingHandle":
    """For what belongs to a tensor: as that is marked; of another shape, whole where that is."""
    known = _C.annotation(tensor)
    if known is not None and part.shape == tensor.shape:
        return known
    return on_stage_of(tensor, _whole(part, mesh))


def _gather(
    cut: list[torch.Tensor], wanted: "dict[torch.Tensor, _C.ShardingHandle]", mesh: Mesh
) -> None:
    """Tensors that lie in pieces lie whole: only such go to stages. A few at a time, then on."""
    unmark(cut)
    while cut:
        some, held = [], 0
        while cut and held < AT_A_TIME:
            some.append(cut.pop())
            held += some[-1].nbytes
        for tensor in some:
            annotate(tensor, _whole(tensor, mesh))
        _C.flush()
        for tensor in some:
            annotate(tensor, wanted[tensor])


def _whole(tensor: torch.Tensor, mesh: Mesh) -> "_C.ShardingHandle":
    return handle_for(tensor, mesh, (None,) * tensor.dim())


def _held(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Parameters and buffers, each with its gradient and the state of the optimizer for it."""
    states = {} if optimizer is None else optimizer.state
    for tensor in tensors_of(model).values():
        state = states[tensor].values() if tensor in states else ()
        belonging = [value for value in state if isinstance(value, torch.Tensor)]
        yield tensor, belonging + ([] if tensor.grad is None else [tensor.grad])
