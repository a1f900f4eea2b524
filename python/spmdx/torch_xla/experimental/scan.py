# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.scan: a function called for each row, recorded row by row."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    partition_fn: Any = None,
    is_fn_pure: bool = False,
) -> tuple[Any, Any]:
    """Call ``fn(carry, x)`` for each row of ``xs``; stack what it gives besides the carry.

    Args:
        fn: gives the next carry and a value.
        init: the first carry.
        xs: tensors in a structure, of the same length.
        partition_fn: kept for programs that give it: rows are recorded, and planned as one.
        is_fn_pure: kept for programs that give it.

    Returns:
        The last carry, and the values of all rows.

    Raises:
        ValueError: no tensors, or tensors of different lengths.
    """
    leaves = [x for x in pytree.tree_leaves(xs) if isinstance(x, torch.Tensor)]
    lengths = {len(x) for x in leaves}
    if len(lengths) != 1:
        raise ValueError(f"xs has tensors of the lengths {sorted(lengths)}. Expected one.")
    carry, values = init, []
    for row in range(lengths.pop()):
        taken = pytree.tree_map_only(torch.Tensor, operator.itemgetter(row), xs)
        carry, value = fn(carry, taken)
        values.append(value)
    if not values:
        return carry, None
    return carry, pytree.tree_map(_stacked, *values)


def _stacked(*rows: Any) -> Any:
    return None if rows[0] is None else torch.stack(rows)
