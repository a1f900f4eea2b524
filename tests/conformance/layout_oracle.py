# SPDX-License-Identifier: Apache-2.0
"""One entry of op_db: strides of results and gradients against those that PyTorch gives on the CPU.

Strides are known when an op is recorded, so nothing is run. Operands lie in many ways.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from op_samples import Sample, entries, name_of, share_of
from settings import Setting
from torch.utils import _pytree as pytree
from verdict import SEED, Verdict

__all__ = ["entries", "judge", "name_of"]

ASKED = {("4 even", "f32"), ("3 uneven", "f32"), ("4 even", "bf16"), ("4 even", "c64")}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
# Kernels that write through repeated elements; the device refuses (docs/decisions.md).
REFUSED = "more than one element of the written-to tensor"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How an operand lies in memory.

    Attributes:
        base: of a tensor of at least one dim, a dense one that travels to the device.
        view: what is taken of it there, of the tensor's shape.
    """

    base: Callable[[torch.Tensor], torch.Tensor]
    view: Callable[[torch.Tensor, torch.Size], torch.Tensor] = lambda base, shape: base

    def of(self, tensor: torch.Tensor, device: str) -> torch.Tensor:
        made = tensor.detach().clone()
        if made.dim() and made.numel():
            made = self.view(self.base(made).to(device), tensor.shape)
        return made.to(device).detach().requires_grad_(tensor.requires_grad)


LAYOUTS = {
    "as given": Layout(lambda t: t),
    "turned": Layout(lambda t: t.transpose(0, -1).contiguous().transpose(0, -1)),
    "rolled": Layout(lambda t: t.movedim(0, -1).contiguous().movedim(-1, 0)),
    "channels last": Layout(
        lambda t: t.clone(memory_format=CHANNELS_LAST.get(t.dim(), torch.preserve_format))
    ),
    "every other": Layout(lambda t: t.repeat_interleave(2, -1), lambda base, _: base[..., ::2]),
    "some rows": Layout(lambda t: torch.cat([t, t]), lambda base, shape: base[: shape[0]]),
    "some columns": Layout(
        lambda t: torch.cat([t, t], -1), lambda base, shape: base[..., : shape[-1]]
    ),
    "expanded": Layout(lambda t: t[:1].clone(), lambda base, shape: base.expand(shape)),
}
# What comes from upstream when gradients are computed.
UPSTREAM = {
    "as the result": lambda o: torch.ones_like(o.detach()),
    "contiguous": lambda o: torch.ones(o.shape, dtype=o.dtype, device=o.device),
    "expanded": lambda o: torch.ones((), dtype=o.dtype, device=o.device).expand(o.shape),
}


def variants(count: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Layouts of so many operands, and of what comes from upstream."""
    for layout in LAYOUTS:
        yield (layout,) * count, "as the result"
    yield ("as given",) * count, "expanded"
    yield ("channels last",) * count, "contiguous"
    yield ("rolled",) * count, "expanded"
    if count > 1:
        for layout in ("channels last", "rolled", "turned"):
            yield (layout, *["as given"] * (count - 1)), "contiguous"
            yield ("as given", *[layout] * (count - 1)), "as the result"


def strides_of(leaf: Any) -> tuple[Any, ...] | None:
    """Sizes and strides; no strides where no element is."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
        return None
    return tuple(leaf.shape), leaf.stride() if leaf.numel() else ()


def run(
    op: Any, sample: Sample, layouts: tuple[str, ...], upstream: str, device: str
) -> dict[str, Any]:
    """Strides of each leaf of the result, and of each gradient."""
    tensors = [
        LAYOUTS[layout].of(sample.leaves[at], device)
        for at, layout in zip(sample.tensors, layouts, strict=True)
    ]
    value, args, kwargs = sample.replaced(tensors, device)
    torch.manual_seed(SEED)
    outputs = pytree.tree_leaves(op(value, *args, **kwargs))
    said = {f"result {at}": strides_of(o) for at, o in enumerate(outputs)}
    made = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    wanted = [t for t in tensors if t.requires_grad]
    if made and wanted:
        cotangents = [UPSTREAM[upstream](o) for o in made]
        found = torch.autograd.grad(made, wanted, cotangents, allow_unused=True)
        said |= {f"gradient {at}": strides_of(g) for at, g in enumerate(found)}
    return said


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first leaf that lies otherwise; empty if none does."""
    for what, there in wanted.items():
        if found.get(what) != there:
            return f"{what}: {found.get(what)}, not {there}"
    return ""


def judge(
    op: Any,
    setting: Setting,
    at=lambda sample, layouts: None,
    dtype: torch.dtype = torch.float32,
) -> Verdict:
    """Records an entry of op_db, on no mesh.

    Args:
        op: the entry.
        setting: the sizes of samples, and how many.
        at: is told which sample and layouts are about to run.
        dtype: of the samples.
    """
    verdict = Verdict(name_of(op))
    for number, sample in share_of(op, setting, dtype, verdict):
        for layouts, upstream in variants(len(sample.tensors)):
            at(number, layouts)
            try:
                wanted = run(op, sample, layouts, upstream, "cpu")
            except Exception:  # what PyTorch refuses is no yardstick
                continue
            try:
                said = differences(run(op, sample, layouts, upstream, "spmdx"), wanted)
            except Exception as error:
                said = "" if REFUSED in str(error) else f"{type(error).__name__}: {error}"
            verdict.runs += not said
            if said:
                verdict.trouble.append(f"sample {number}, {layouts}, upstream {upstream}: {said}")
    if not verdict.runs and not verdict.trouble:
        verdict.note = "takes no dense tensor, or PyTorch refuses all"
    return verdict
