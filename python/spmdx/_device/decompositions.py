# SPDX-License-Identifier: Apache-2.0
"""Ops without a rule that PyTorch can compose of others are composed, not gathered."""

import functools

import torch
from torch._decomp import decomposition_table

# PyTorch's compositions that give another shape than its op.
UNLIKE_THE_OP = {"aten::multilabel_margin_loss_forward"}


def _copy(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``copy_`` without a write, as compilers write it; the kernel has to know if it blocks."""
    return self.clone().copy_(source)


_OURS = {"aten::copy": _copy}
_library = torch.library.Library("aten", "IMPL")  # alive as long as its kernels are wanted
_composed: dict[str, str] = {}


def composes(op: str, functional: str) -> bool:
    """Whether an op can be composed; remembers it for :func:`install`.

    Args:
        op: as ``"aten::renorm_"``.
        functional: its variant without writes, as ``"aten::renorm"``; perhaps itself.
    """
    if functional in UNLIKE_THE_OP or _composition(functional) is None:
        return False
    _composed[op] = functional
    return True


def install() -> None:
    """Gives the device these kernels. Their ops are recorded where the user called them."""
    for op, functional in _composed.items():
        decomposition = _composition(functional)
        kernel = decomposition if op == functional else _writing(decomposition)
        _library.impl(op.removeprefix("aten::"), kernel, "PrivateUse1")


def _writing(decomposition):
    """In place: the first operand gets the result."""

    @functools.wraps(decomposition)
    def write(self, *args, **kwargs):
        return self.copy_(decomposition(self, *args, **kwargs))

    return write


def _composition(name: str):
    """Of an op by its name: a function that composes it, or None."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    return _OURS.get(name) or decomposition_table.get(op)
