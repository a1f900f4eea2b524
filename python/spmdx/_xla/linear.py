# SPDX-License-Identifier: Apache-2.0
"""Linear layers under torch_xla's names: plain ones, as the device cuts all dims of any layer."""

from typing import Any

import torch
from torch import Tensor


class XLAPatchedLinear(torch.autograd.Function):
    """A linear layer that leaves the leading dims of its input as they are."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.has_bias = bias is not None
        if torch.is_autocast_enabled("xla"):
            fast = torch.get_autocast_dtype("xla")
            input, weight = input.to(fast), weight.to(fast)
            bias = None if bias is None else bias.to(fast)
        product = torch.einsum("...n,mn->...m", input, weight)
        return product if bias is None else product + bias

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        input, weight = ctx.saved_tensors
        (grad,) = grads
        of_input = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_input = torch.einsum("...m,mn->...n", grad, weight.to(grad.dtype)).to(input.dtype)
        if ctx.needs_input_grad[1]:
            of_weight = torch.einsum("...m,...n->mn", grad, input.to(grad.dtype)).to(weight.dtype)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            of_bias = torch.einsum("...m->m", grad)
        return of_input, of_weight, of_bias


def xla_patched_nn_linear_forward(m: torch.nn.Linear, input: Tensor) -> Tensor:
    """The result of a linear layer, by :class:`XLAPatchedLinear`.

    Args:
        m: the layer.
        input: of any rank.

    Returns:
        ``input`` times the weight, plus the bias.
    """
    return XLAPatchedLinear.apply(input, m.weight, m.bias)


class EinsumLinear(torch.nn.Linear):
    """``torch.nn.Linear`` by :class:`XLAPatchedLinear`."""

    def forward(self, input: Tensor) -> Tensor:
        return XLAPatchedLinear.apply(input, self.weight, self.bias)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module) -> torch.nn.Module:
    """Make every linear layer of ``module`` an :class:`EinsumLinear`, in place.

    Args:
        module: of any class.

    Returns:
        ``module`` itself.
    """
    for layer in module.modules():
        if type(layer) is torch.nn.Linear:
            layer.__class__ = EinsumLinear
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> None:
    """Do nothing: the planner orders collectives itself, and needs no barrier.

    Args:
        m: a module.
    """
