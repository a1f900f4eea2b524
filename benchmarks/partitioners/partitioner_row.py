# SPDX-License-Identifier: Apache-2.0
"""One program on both sides: collectives of our plan and of XLA's partition, and its numbers."""

from collections import Counter
from typing import NamedTuple

import spmdx
import torch
from partitioner_programs import PROGRAMS, Put, mesh_of, run
from partitioner_xla import Partitioned

BOUND = 4e-6  # of the largest number of a result, or of 1: 32 roundings of f32


class Row(NamedTuple):
    """Collectives by kind, and the bytes that one device receives.

    Attributes:
        off: how far XLA's numbers are from plain PyTorch's at most, of the largest of a result.
        hlo: XLA's program for one device.
    """

    ours: Counter
    our_bytes: int
    theirs: Counter
    their_bytes: int
    off: float
    hlo: str


def row_of(name: str) -> Row:
    expected, mesh = run(name, Put()), mesh_of(name)
    results = run(name, Put(mesh))
    report = spmdx.explain(results[0])
    ours: Counter = Counter()
    for one in report.collectives:
        ours[one.kind] += one.count
    partitioned = Partitioned(spmdx.export.stablehlo(results), len(mesh.device_ids))
    found = partitioned.run(spmdx.export.arguments(results))
    theirs = partitioned.collectives()
    kinds, received = Counter(kind for kind, _ in theirs), sum(size for _, size in theirs)
    return Row(ours, report.wire_bytes, kinds, received, off_by(found, expected), partitioned.hlo)


def off_by(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """How far results are off at most, of the largest number of each or of 1."""
    off = []
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        want = want.detach().double()
        most = max(1.0, want.abs().max().item())
        off.append((got.double() - want).abs().max() / most)
    return torch.stack(off).max().item()  # NaN where one is


def told(kinds: Counter) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"


def line_of(name: str, row: Row) -> str:
    mesh = ", ".join(f"{axis} {size}" for axis, size in PROGRAMS[name].mesh.items())
    ours, theirs = f"{told(row.ours)} | {row.our_bytes:,}", f"{told(row.theirs)}"
    return f"| {name} | {mesh} | {ours} | {theirs} | {row.their_bytes:,} |"
