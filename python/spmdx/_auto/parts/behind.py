# SPDX-License-Identifier: Apache-2.0
"""Parts that are known, in autograd: gradients pass through them, and cost nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import spmdx._C as _C


class Behind(torch.autograd.Function):
    """Results that are known, behind the inputs and parameters that they depend on."""

    @staticmethod
    def forward(
        ctx: Any,
        began: Callable[[], None],
        gradients: Sequence[torch.Tensor | None],
        outputs: Sequence[torch.Tensor],
        *wanted: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.began, ctx.gradients = began, gradients
        return tuple(output.detach() for output in outputs)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        ctx.began()
        return None, None, None, *(g if g is None else g.detach() for g in ctx.gradients)


class _Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def results_of(
    outputs: Any,
    inputs: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    began: Callable[[], None],
) -> Any:
    """The results of a part again, as each call gives its own.

    Args:
        outputs: the known ones.
        inputs: tensors of this call.
        parameters: of the unit that is called.
        gradients: that were planned, by input and parameter of a like unit that learns; empty
            where nothing does. A parameter stands for its gradient, which lies as it does.
        began: is called in backward passes.
    """
    leaves, tree = tree_flatten(tree_map(detached, outputs))
    ends = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not gradients or not torch.is_grad_enabled():
        return tree_unflatten(leaves, tree)
    wanted = [t for t in inputs if t.requires_grad]
    given = list(gradients[: len(wanted)])
    learned = [p for p in parameters if p.requires_grad]
    for parameter, gradient in zip(learned, gradients[len(wanted) :], strict=True):
        given.append(None if gradient is None else parameter)
    made = Behind.apply(began, given, [leaves[i] for i in ends], *wanted, *learned)
    for place, tensor in zip(ends, made, strict=True):
        leaves[place] = tensor
    return tree_unflatten(leaves, tree)


def cut_off(tree: Any) -> tuple[list[torch.Tensor], Any]:
    """Leaves of their own for the tensors in containers, and these with what is made of them.

    Nothing goes back beyond the leaves, and what is made of them may be changed in place.
    """
    own: list[torch.Tensor] = []

    def begun(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not _C.is_lazy(value):
            return value
        own.append(detached(value))
        return _Same.apply(own[-1]) if value.requires_grad else own[-1]

    return own, tree_map(begun, tree)


def detached(value: Any) -> Any:
    """A tensor without its history; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)
