# SPDX-License-Identifier: Apache-2.0
"""The backward passes of a trial: they call no hooks of gradients, and leave no gradients."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules import module as modules


@contextlib.contextmanager
def without_gradient_hooks(
    model: torch.nn.Module, tensors: Sequence[torch.Tensor]
) -> Iterator[None]:
    """A block in which gradients call no hooks.

    The dicts of hooks are emptied and filled again: they are those that handles know, and that
    autograd asks.
    """
    found: list[Any] = [modules._global_backward_hooks, modules._global_backward_pre_hooks]
    for module in model.modules():
        found += [module._backward_hooks, module._backward_pre_hooks]
    for tensor in tensors:
        found += [tensor._backward_hooks, tensor._post_accumulate_grad_hooks]
    by_id: dict[int, Any] = {id(hooks): hooks for hooks in found if hooks}
    before = [(hooks, list(hooks.items())) for hooks in by_id.values()]
    for hooks in by_id.values():
        hooks.clear()
    try:
        yield
    finally:
        for hooks, items in before:
            hooks.clear()
            hooks.update(items)


@contextlib.contextmanager
def no_gradients_left(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """A block behind which tensors have the gradients of before, also where ``forward`` makes some.

    A tensor that retains its gradient gets one in the block, as a leaf may.
    """
    before = [(t, t.grad) for t in tensors if t.is_leaf or t.retains_grad]
    try:
        yield
    finally:
        for tensor, gradient in before:
            if tensor.grad is not gradient:
                tensor.grad = gradient
