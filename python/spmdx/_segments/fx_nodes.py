# SPDX-License-Identifier: Apache-2.0
"""Nodes of graphs of torch.fx that were traced, as segments have them."""

from typing import Any

import torch
from torch.fx import Node

from spmdx._segments.segment import DTYPES, NAMES, Type


def name_of(node: Node) -> str:
    """``"aten.add.Tensor"``; the overload ``default`` is left out."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    name: str = schema.name.replace("::", ".")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def types_of(node: Node) -> tuple[Type, ...]:
    """Of its results; ``"unknown"`` of those that are no tensors."""
    value = node.meta["val"]
    return tuple(map(type_of, value if isinstance(value, list | tuple) else [value]))


def type_of(value: Any) -> Type:
    """Of a tensor; ``"unknown"`` of others.

    Raises:
        ValueError: segments have no such dtype.
    """
    if not isinstance(value, torch.Tensor):
        return Type("unknown", ())
    if value.dtype not in NAMES:
        raise ValueError(f"a tensor is of {value.dtype}. Expected one of {', '.join(DTYPES)}")
    return Type(NAMES[value.dtype], tuple(value.shape))
