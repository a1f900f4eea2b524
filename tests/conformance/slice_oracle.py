# SPDX-License-Identifier: Apache-2.0
"""One entry of op_db: PyTorch's kernels on the CPU get operands that are parts of larger tensors.

A device's part of a tensor is often such a slice. A kernel that reads it wrongly, or another way
than what is whole, has to be in the list of those that are given contiguous operands alone.
"""

import dataclasses
from typing import Any

import torch
from layout_oracle import LAYOUTS, Layout
from op_samples import entries, name_of, share_of
from settings import Setting
from spmdx import _C
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from verdict import SEED, Verdict, compare

__all__ = ["entries", "judge", "name_of"]

ASKED = {("4 even", "f32"), ("3 uneven", "f32"), ("4 even", "c64")}
# Results that are not the same twice, or have no values.
NOT_FIXED = torch.Tag.nondeterministic_seeded, torch.Tag.nondeterministic_bitwise
# What these do is said by strides, so the device traces them otherwise.
BY_STRIDES = {"aten::_unsafe_view", "aten::as_strided_copy", "aten::as_strided_scatter"}
MOST = 16  # samples
CALLS = 4  # of a kernel that are tried, of a sample
OTHERWISE = {how: LAYOUTS[how] for how in ("turned", "some columns")} | {
    "some channels": Layout(
        lambda t: torch.cat([t, t], 1), lambda base, shape: base[:, : shape[1]]
    ),
}


def can_lie_otherwise(leaf: Any) -> bool:
    dense = isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided
    return dense and leaf.dim() > 1 and leaf.numel() > 1 and leaf.is_contiguous()


def is_asked(op: Any) -> bool:
    """Whether an op makes new tensors, which are the same at each call."""
    returns_views = any(r.alias_info is not None for r in op._schema.returns)
    listed = _C.needs_contiguous(op.name().replace("::", ".", 1).removesuffix(".default"))
    unwritten = "empty" in op.name()
    fixed = op._schema.returns and not any(tag in op.tags for tag in NOT_FIXED)
    left_out = returns_views or listed or unwritten or op.name() in BY_STRIDES
    return fixed and not (op._schema.is_mutable or left_out)


class Kernels(TorchDispatchMode):
    """Calls kernels again, with operands that lie otherwise.

    Attributes:
        trouble: what differed.
        runs: calls that did not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trouble: list[str] = []
        self.runs = 0
        self._calls: dict[str, int] = {}

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        wanted = op(*args, **(kwargs or {}))
        calls = self._calls.get(op.name(), 0)
        if calls < CALLS and is_asked(op):
            self._calls[op.name()] = calls + 1
            self._try(op, args, kwargs or {}, wanted)
        return wanted

    def _try(self, op: Any, args: tuple, kwargs: dict, wanted: Any) -> None:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        outputs = pytree.tree_leaves(wanted), []
        for at, leaf in enumerate(leaves):
            if not can_lie_otherwise(leaf):
                continue
            for how, layout in OTHERWISE.items():
                changed = [*leaves]
                changed[at] = layout.of(leaf, "cpu")
                again, named = pytree.tree_unflatten(changed, structure)
                try:
                    found = pytree.tree_leaves(op(*again, **named)), []
                    said = compare(found, outputs)
                except Exception as error:
                    said = f"{type(error).__name__}: {error}"
                self.runs += not said
                if said:
                    self.trouble.append(f"{op.name()}, operand {at} {how}: {said}")


def judge(
    op: Any,
    setting: Setting,
    at=lambda sample, layouts: None,
    dtype: torch.dtype = torch.float32,
) -> Verdict:
    """Calls the kernels of an entry of op_db, forward and backward.

    Args:
        op: the entry.
        setting: the sizes of samples, and how many.
        at: is told which sample is about to run.
        dtype: of the samples.
    """
    verdict = Verdict(name_of(op))
    few = dataclasses.replace(setting, most_samples=min(setting.most_samples or MOST, MOST))
    for number, sample in share_of(op, few, dtype, verdict):
        at(number, "")
        kernels = Kernels()
        value, args, kwargs = pytree.tree_unflatten(sample.leaves, sample.structure)
        torch.manual_seed(SEED)
        try:
            with kernels:
                outputs = pytree.tree_leaves(op(value, *args, **kwargs))
                made = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
                if made:
                    torch.autograd.backward(made, [torch.ones_like(o.detach()) for o in made])
        except Exception as error:  # what PyTorch refuses is no yardstick
            verdict.note = str(error)
        verdict.runs += kernels.runs
        verdict.trouble += [f"sample {number}: {said}" for said in kernels.trouble]
    if verdict.runs or verdict.trouble:
        verdict.note = ""
    return verdict
