# SPDX-License-Identifier: Apache-2.0
"""One entry of op_db on a mesh: every placement's results and gradients against plain PyTorch."""

import collections
import dataclasses
import math
from typing import Any

import spmdx
import torch
from op_samples import UNWRITTEN, Sample, entries, name_of, samples
from placements import Placement, placements
from settings import Setting
from torch.utils import _pytree as pytree

# Muon orthogonalises in bfloat16.
LOOSE = {"Muon": 2e-2}
RELATIVE = 2e-4  # of a tensor's largest finite number: f32, summed in another order
SMALL = 1e-2  # the largest number of a tensor counts as at least that


@dataclasses.dataclass
class Verdict:
    """What became of an entry.

    Attributes:
        op: its name.
        runs: placements that ran, and were equal.
        fell_back: how many of them met an op without a rule.
        fallbacks: those ops, with how often.
        wire_bytes: what a device received in all runs.
        trouble: what differed or was raised, with sample and placement.
        note: why nothing ran.
    """

    op: str
    runs: int = 0
    fell_back: int = 0
    fallbacks: dict[str, int] = dataclasses.field(default_factory=collections.Counter)
    wire_bytes: int = 0
    trouble: list[str] = dataclasses.field(default_factory=list)
    note: str = ""


__all__ = ["Verdict", "entries", "judge", "name_of"]
Results = tuple[list[Any], list[torch.Tensor | None]]


def run(
    op: Any,
    sample: Sample,
    device: str,
    mesh: Any = None,
    placement: Placement = (),
    seed: int = 7,
) -> Results:
    """Leaves of the result and gradients of the tensors, on the CPU."""
    tensors = []
    for at, index in enumerate(sample.tensors):
        original = sample.leaves[index]
        tensor = original.detach().clone().to(device).requires_grad_(original.requires_grad)
        if placement and placement[at]:
            spmdx.mark_sharding(tensor, mesh, placement[at])
        tensors.append(tensor)
    value, args, kwargs = sample.replaced(tensors, device)
    torch.manual_seed(seed)
    outputs = pytree.tree_leaves(sample.simplify(op(value, *args, **kwargs)))
    made = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    wanted = [t for t in tensors if t.requires_grad]
    gradients = iter(())
    if made and wanted:
        upstream = [cotangent(o, at).to(device) for at, o in enumerate(made)]
        gradients = iter(torch.autograd.grad(made, wanted, upstream, allow_unused=True))
    if device == "spmdx":
        spmdx.mark_step()
    found = [next(gradients, None) if t.requires_grad else None for t in tensors]
    return [on_cpu(o) for o in outputs], [on_cpu(g) for g in found]


def cotangent(output: torch.Tensor, at: int) -> torch.Tensor:
    """Random, and the same on every device."""
    generator = torch.Generator().manual_seed(at)
    return torch.randn(output.shape, generator=generator).to(output.dtype)


def on_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf


def difference(found: Any, wanted: Any, values: bool = True, close: float = RELATIVE) -> str:
    """How two leaves differ; empty where they do not."""
    if type(found) is not type(wanted):
        return f"a {type(found).__name__} where PyTorch gives a {type(wanted).__name__}"
    if not isinstance(wanted, torch.Tensor):
        return "" if same_number(found, wanted) else f"{found!r}, not {wanted!r}"
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype} {list(found.shape)}, not {wanted.dtype} {list(wanted.shape)}"
    if not values:
        return ""
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return "" if torch.equal(found, wanted) else "other whole numbers"
    finite = wanted[wanted.isfinite()].abs()
    scale = max(float(finite.max()) if finite.numel() else 0.0, SMALL)
    near = torch.isclose(found, wanted, rtol=close, atol=close * scale, equal_nan=True)
    if near.all():
        return ""
    at = (~near).nonzero()[0].tolist()
    return f"{found[tuple(at)].item()!r}, not {wanted[tuple(at)].item()!r}, at {at}"


def same_number(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        close = math.isclose(found, wanted, rel_tol=RELATIVE)
        return close or (math.isnan(found) and math.isnan(wanted))
    return found == wanted


def compare(found: Results, wanted: Results, values: bool = True, close: float = RELATIVE) -> str:
    """How results or gradients differ; empty where they do not."""
    for what, here, there in zip(("result", "gradient"), found, wanted, strict=True):
        if len(here) != len(there):
            return f"{len(here)} {what}s, not {len(there)}"
        for at, (x, y) in enumerate(zip(here, there, strict=True)):
            said = difference(x, y, values, close)
            if said:
                return f"{what} {at}: {said}"
    return ""


def reference(op: Any, sample: Sample) -> Results | None:
    """What PyTorch gives, or one spmdx device where numbers are drawn; None where it raises."""
    try:
        wanted, again = run(op, sample, "cpu"), run(op, sample, "cpu", seed=8)
    except (
        Exception
    ):  # op_db has samples for sizes of its own; what PyTorch refuses is no yardstick
        return None
    drawn = compare(again, wanted) and name_of(op) not in UNWRITTEN
    return run(op, sample, "spmdx") if drawn else wanted


def judge_placement(op, sample, wanted, mesh, placement, verdict: Verdict) -> str:
    """What is wrong with one run; empty where nothing is."""
    spmdx.debug.reset_counters()
    try:
        found = run(op, sample, "spmdx", mesh, placement)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    counters = spmdx.debug.counters()
    verdict.wire_bytes += counters["wire_bytes"]
    if counters["fallback_ops"]:
        verdict.fell_back += 1
        verdict.fallbacks.update(spmdx.debug.fallbacks())
    return compare(found, wanted, values=name_of(op) not in UNWRITTEN)


def mesh_of(setting: Setting) -> spmdx.Mesh:
    names = ("x", "y")[: len(setting.mesh)]
    return spmdx.Mesh(range(math.prod(setting.mesh)), setting.mesh, names)


def judge(op: Any, setting: Setting, at=lambda sample, placement: None) -> Verdict:
    """Runs an entry of op_db.

    Args:
        op: the entry.
        setting: the mesh and the samples.
        at: is told which sample and placement are about to run.
    """
    verdict = Verdict(name_of(op))
    mesh = mesh_of(setting)
    try:
        drawn = samples(op, setting.sizes)
    except Exception as error:
        verdict.note = f"op_db makes no samples of these sizes: {error}"
        return verdict
    if not drawn:
        verdict.note = "takes no dense tensor"
    step = max(1, len(drawn) // (setting.most_samples or len(drawn) or 1))
    for number, sample in list(enumerate(drawn))[::step]:
        at(number, "on one device")
        wanted = reference(op, sample)
        if wanted is None:
            continue
        ndims = [sample.leaves[i].dim() for i in sample.tensors]
        for placement in placements(ndims, len(setting.mesh), setting.most_placements, number):
            at(number, placement)
            said = judge_placement(op, sample, wanted, mesh, placement, verdict)
            if said:
                verdict.trouble.append(f"sample {number}, {placement}: {said}")
            else:
                verdict.runs += 1
    if not verdict.runs and not verdict.trouble and not verdict.note:
        verdict.note = "no sample has a dim to cut, or PyTorch refuses all"
    return verdict
