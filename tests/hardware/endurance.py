# SPDX-License-Identifier: Apache-2.0
"""What shows in many runs alone: memory that is not given back."""

import resource
from collections.abc import Collection

import torch
from case_segments import given, kernel
from cases import Case, case_of
from spmdx._segments.one_line import of_error
from spmdx.compilers import Compiler

RUNS, WARM = 200, 20
MOST_GROWTH = 50  # MB; each run gives 1 MB
_OPS = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.neg", "aten.exp", "aten.mm")


def large_case(ops: Collection[str]) -> Case | None:
    """An op that the compiler takes, with a result of 1 MB."""
    name = next((name for name in _OPS if name in ops), None)
    operands = [torch.full((512, 512), 0.5), torch.full((512, 512), 0.25)]
    one = name in ("aten.neg", "aten.exp")
    return case_of(name, operands[: 1 if one else 2], "f32", "memory") if name else None


def leak(compiler: Compiler, case: Case) -> str:
    """How much more the process holds after many runs, if that is more than it may be."""
    try:
        made = kernel(compiler, [case])
        for _ in range(WARM):
            made.run([given(case)])
        before = _megabytes()
        for _ in range(RUNS):
            made.run([given(case)])
    except Exception as error:
        return of_error(error)
    grown = _megabytes() - before
    return f"{grown:.0f} MB more after {RUNS} runs of 1 MB each" if grown > MOST_GROWTH else ""


def _megabytes() -> float:
    """That the process holds now."""
    with open("/proc/self/statm") as stat:
        return int(stat.read().split()[1]) * resource.getpagesize() / 2**20
