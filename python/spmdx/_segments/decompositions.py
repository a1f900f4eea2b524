# SPDX-License-Identifier: Apache-2.0
"""Decompositions of ops into others: PyTorch's and our own, and which of them are taken."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spmdx._segments.graph_module import operator
from spmdx._segments.own_decompositions import OWN

# Ops that PyTorch's decompositions make otherwise than its kernels do: rows that count from the end
# are no error, targets of -1 count, scales and infinite numbers are not seen the same way.
_OTHERWISE = (
    *("aten.multilabel_margin_loss", "aten.upsample_nearest", "aten.grid_sampler"),
    *("aten.index_add", "aten.index_copy", "aten.soft_margin_loss", "aten.hardsigmoid_backward"),
    *("aten.logit_backward", "aten.mvlgamma", "aten.diagonal_scatter"),
)
_OTHERWISE_ALONE = ("aten.embedding", "aten.index_select")


def taken(known: Sequence[str], rows: frozenset[str], left_alone: tuple[str, ...]) -> list[str]:
    """Those of the known ops that are rows, or are put together as PyTorch's kernels do.

    Args:
        rows: names of ops that are primitive.
        left_alone: beginnings of names that are not taken, as are views by strides.
    """
    left_alone = ("aten.as_strided", *left_alone)
    return [name for name in known if not name.startswith(left_alone) and _is_taken(name, rows)]


def _is_taken(name: str, rows: frozenset[str]) -> bool:
    target = operator(name)
    if target is None:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags and target not in OWN:
        return False
    if name in rows or target in OWN:
        return True
    is_otherwise = name.startswith(_OTHERWISE) or name in _OTHERWISE_ALONE
    return target in _pytorchs() and not is_otherwise


@functools.cache
def decompositions(rows: frozenset[str]) -> dict[Any, Callable]:
    """By ops: how each is put together, but for those that are rows."""
    kept = {operator(name) for name in rows}
    return {op: how for op, how in {**_pytorchs(), **OWN}.items() if op not in kept}


@functools.cache
def _pytorchs() -> dict[Any, Callable]:
    from torch._decomp import global_decomposition_table

    return dict(global_decomposition_table["post_autograd"])
