# SPDX-License-Identifier: Apache-2.0
"""Segments as StableHLO, which XLA and IREE take."""

import functools
from collections.abc import Iterable, Sequence

import torch

import spmdx._C as _C
from spmdx._segments.compiler import Runs
from spmdx._segments.graph_module import operator
from spmdx._segments.own_decompositions import OWN
from spmdx._segments.primitive import is_decomposed, primitive_text
from spmdx._segments.segment import Segment

# Views by strides, which are others here; what PyTorch puts together more exactly, or with other
# infinite numbers, than its decompositions and CHLO do.
_LEFT_ALONE = (
    *(
        "aten.as_strided",
        "aten._native_multi",
        "aten.soft_margin_loss",
        "aten.hardsigmoid_backward",
    ),
    *("aten.digamma", "aten.lgamma", "aten.special_zeta", "aten.logit_backward", "aten.var_mean"),
    *("aten.std_mean", "aten.polygamma", "aten.mvlgamma", "aten.multilabel_margin_loss"),
    *("aten.upsample_nearest", "aten.grid_sampler", "aten.index_add", "aten.index_copy"),
    "aten.diagonal_scatter",
)


def stablehlo_text(segment: Segment) -> str:
    """An MLIR module whose function ``main`` is the segment.

    It takes the segment's inputs, then a scalar of f64 for each parameter.

    Raises:
        NotTaken: ops of the segment cannot be written; says which ones, and why.
    """
    return _C.stablehlo(primitive_text(segment, _rows(), _C.stablehlo))


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
    return filter(_is_taken, known)


@functools.cache
def _rows() -> frozenset[str]:
    return frozenset(_C.ops_of_stablehlo())


def _is_taken(name: str) -> bool:
    target = operator(name)
    if target is None or name.startswith(_LEFT_ALONE):
        return False
    is_random = torch.Tag.nondeterministic_seeded in target.tags and target not in OWN
    return not is_random and (name in _rows() or is_decomposed(name))
