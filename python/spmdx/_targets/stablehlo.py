# SPDX-License-Identifier: Apache-2.0
"""Segments as StableHLO, which XLA and IREE take."""

import functools
from collections.abc import Callable, Iterable, Sequence

import torch

import spmdx._C as _C
from spmdx._segments.compiler import Runs
from spmdx._segments.decompositions import taken
from spmdx._segments.primitive import primitive_text
from spmdx._segments.segment import Segment

# What PyTorch is more exact in, or gives other infinite numbers for, than CHLO does.
_LEFT_ALONE = (
    *("aten._native_multi", "aten.digamma", "aten.lgamma", "aten.special_zeta", "aten.var_mean"),
    *("aten.std_mean", "aten.polygamma"),
)


def stablehlo_text(
    segment: Segment, check: Callable[[str], object] = lambda text: None, whose: str = ""
) -> str:
    """An MLIR module whose function ``main`` is the segment.

    It takes the segment's inputs, then a scalar of f64 for each parameter.

    Args:
        check: raises for the module of a single op that is not taken.
        whose: names the check.

    Raises:
        NotTaken: ops of the segment cannot be written; says which ones, and why.
    """
    written = primitive_text(segment, rows(), lambda alone: check(_C.stablehlo(alone)), whose)
    return _C.stablehlo(written)


def results_of(text: str) -> int:
    """How many results ``main`` has: those of the segment, and one more if the program may fail."""
    return text.partition(") -> (")[2].partition(") {")[0].count("tensor<")


def raising(runs: Runs, outputs: int) -> Runs:
    """What runs a segment, without the result that says whether PyTorch's kernels would raise.

    An error makes PyTorch's kernels run, which say what is wrong, and with what line.
    """

    def run(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        results = runs(tensors)
        if len(results) > outputs and not bool(results[outputs]):
            raise IndexError("an index is out of range, or an integer is divided by zero")
        return results[:outputs]

    return run


def ops_taken(known: Sequence[str]) -> Iterable[str]:
    """Those of the known ops that are written, or are put together from such."""
    return taken(known, rows(), _LEFT_ALONE)


@functools.cache
def rows() -> frozenset[str]:
    """Names of ops that are written."""
    return frozenset(_C.ops_of_emitters()["stablehlo"])
