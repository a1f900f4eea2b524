# SPDX-License-Identifier: Apache-2.0
"""One entry of op_db on a mesh: every placement's results and gradients against plain PyTorch."""

import functools
from functools import partial
from typing import Any

import spmdx
import torch
from op_samples import UNWRITTEN, Sample, entries, name_of, share_of
from placements import Placement, placements
from settings import Setting
from torch.utils import _pytree as pytree
from verdict import (
    NUDGED,
    RELATIVE_IN_DOUBLE,
    SEED,
    SIXTEEN_BITS,
    Results,
    Verdict,
    compare,
    draws_numbers,
    gradients,
    mesh_of,
    on_cpu,
    worse,
)

LARGE = 2**17  # elements

__all__ = ["entries", "judge", "name_of"]


def run(
    op: Any,
    sample: Sample,
    device: str,
    mesh: Any = None,
    placement: Placement = (),
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
    torch.manual_seed(SEED)
    outputs = pytree.tree_leaves(sample.simplify(op(value, *args, **kwargs)))
    found = iter(gradients(outputs, tensors, device, sample.nudge))
    if device == "spmdx":
        spmdx.mark_step()
    of_each = [next(found) if t.requires_grad else None for t in tensors]
    return [on_cpu(o) for o in outputs], [on_cpu(g) for g in of_each]


def reference(op: Any, sample: Sample) -> Results | None:
    """What PyTorch gives, or one spmdx device where numbers are drawn; None where it raises."""
    here = partial(run, op, sample, "cpu")
    try:
        drawn = draws_numbers(here)
    except Exception:  # some samples fit other sizes; what PyTorch refuses is no yardstick
        return None
    return run(op, sample, "spmdx") if drawn else here()


def said_in_double(op: Any, sample: Sample, mesh: Any, placement: Placement) -> str:
    """How results and gradients differ if the tensors are f64."""
    doubled = sample.doubled()
    wanted = reference(op, doubled)
    if wanted is None:
        return "PyTorch refuses double precision"
    found = run(op, doubled, "spmdx", mesh, placement)
    return compare(found, wanted, close=RELATIVE_IN_DOUBLE)


def excuse_of(op: Any, sample: Sample, wanted: Results, mesh: Any, dtype: torch.dtype) -> Any:
    """What the oracle asks where numbers differ: see :func:`worse`, and :func:`said_in_double`."""
    if dtype not in SIXTEEN_BITS:
        return lambda placement, found: said_in_double(op, sample, mesh, placement)
    exact = functools.cache(partial(reference, op, sample.doubled()))

    @functools.cache
    def eager() -> list[Results]:
        near = [reference(op, sample.nudged(seed)) for seed in range(NUDGED)]
        return [wanted, *(run for run in near if run is not None)]

    def further(placement: Placement, found: Results) -> str:
        return worse(found, eager(), exact()) if exact() else "PyTorch refuses double precision"

    return further


def most_placements(sample: Sample, setting: Setting, dtype: torch.dtype) -> int | None:
    """Of a large sample few: in 16 bits one run of eager's own kernel may take many seconds."""
    large = dtype in SIXTEEN_BITS and sample.elements() > LARGE
    return 2 if large else setting.most_placements


def judge(
    op: Any,
    setting: Setting,
    at=lambda sample, placement: None,
    dtype: torch.dtype = torch.float32,
) -> Verdict:
    """Runs an entry of op_db.

    Args:
        op: the entry.
        setting: the mesh and the samples.
        at: is told which sample and placement are about to run.
        dtype: of the samples.
    """
    verdict, written = Verdict(name_of(op)), name_of(op) not in UNWRITTEN
    mesh = mesh_of(setting)
    for number, sample in share_of(op, setting, dtype, verdict):
        at(number, "on one device")
        wanted = reference(op, sample)
        if wanted is None:
            continue
        excuse = excuse_of(op, sample, wanted, mesh, dtype)
        ndims = [sample.leaves[i].dim() for i in sample.tensors]
        most = most_placements(sample, setting, dtype)
        for placement in placements(ndims, len(setting.mesh), most, number):
            at(number, placement)
            here = partial(run, op, sample, "spmdx", mesh, placement)
            where = f"sample {number}, {placement}"
            verdict.hold(where, here, wanted, partial(excuse, placement), values=written)
    if not verdict.runs and not verdict.trouble and not verdict.note:
        verdict.note = "no sample has a dim to cut, or PyTorch refuses all"
    return verdict
