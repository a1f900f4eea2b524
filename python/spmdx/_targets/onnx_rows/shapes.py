# SPDX-License-Identifier: Apache-2.0
"""Shapes: ops that compute nothing, and tensors that are made of nothing."""

from collections.abc import Sequence
from typing import Any

import torch

from spmdx._segments.segment import DTYPES
from spmdx._targets.onnx_rows.elementwise import Types
from spmdx._targets.onnx_rows.writer import Table, Tensor, Writer, dims_of, numel, refuse

_RESHAPES = (
    *("prims.reshape", "prims.collapse_view", "prims.split_dim", "prims.squeeze", "aten.view"),
    *("aten.reshape", "aten._unsafe_view", "prims.collapse", "aten._reshape_alias"),
    *("aten.squeeze", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze"),
)
_SAME = (
    *("prims.view_of", "prims.clone", "aten.clone", "aten.alias", "aten.detach"),
    "aten.lift_fresh",
)
_ZEROS = (
    *("prims.empty_strided", "aten.empty.memory_format", "prims.empty", "prims.empty_permuted"),
    *("aten.empty_permuted", "aten.empty_strided", "aten.zeros", "aten.zeros_like"),
    "aten.empty_like",
)


def _same(w: Writer, types: Types, a: Tensor, *_: Any) -> Tensor:
    return a


def _reshaped(w: Writer, types: Types, a: Tensor, *_: Any) -> Tensor:
    return w.reshape(a, types[0].shape)


def _broadcast(w: Writer, types: Types, a: Tensor, shape: list[int], dims: list[int]) -> Tensor:
    lain = [1] * len(shape)
    for size, dim in zip(a.shape, dims, strict=True):
        lain[dim] = size
    return w.expand(w.reshape(a, lain), types[0].shape)


def _expanded(w: Writer, types: Types, a: Tensor, *_: Any) -> Tensor:
    return w.expand(a, types[0].shape)


def _permuted(w: Writer, types: Types, a: Tensor, dims: list[int]) -> Tensor:
    return w.transpose(a, [dim % len(a.shape) for dim in dims])


def _reversed(w: Writer, types: Types, a: Tensor, dims: list[int]) -> Tensor:
    for dim in dims_of(dims, len(a.shape)) if dims else []:
        size = a.shape[dim]
        told = [w.integers([each]) for each in (size - 1, -size - 1, dim, -1)]
        (a,) = w.many("Slice", [a, *told], [(a.dtype, a.shape)])
    return a


def _joined(w: Writer, types: Types, parts: list[Tensor], dim: int = 0) -> Tensor:
    kept = [w.cast(part, types[0].dtype) for part in parts if part.size]
    return w.concat(kept, dim % len(types[0].shape))


def _sliced(
    w: Writer,
    types: Types,
    a: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    dim %= len(a.shape)
    first, last, _ = slice(start, end, step).indices(a.shape[dim])
    return w.along(a, dim, first, max(first, last), step)


def _selected(w: Writer, types: Types, a: Tensor, dim: int, index: int) -> Tensor:
    dim %= len(a.shape)
    at = index % a.shape[dim]
    return w.reshape(w.along(a, dim, at, at + 1), types[0].shape)


def _padded(w: Writer, types: Types, a: Tensor, pads: list[int], value: Any = 0) -> Tensor:
    rank = len(a.shape)
    low, high = [0] * rank, [0] * rank
    for i in range(len(pads) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    if isinstance(value, Tensor):
        refuse("a padding is a number")
    return w.pad(a, low, high, value or 0)


def _filled(place: int) -> Any:
    """With what the argument at a place is."""

    def row(w: Writer, types: Types, *args: Any) -> Tensor:
        value, kind = args[place], types[0]
        if isinstance(value, Tensor):
            return w.expand(w.reshape(w.cast(value, kind.dtype), ()), kind.shape)
        return w.filled(value, kind)

    return row


def _copied(w: Writer, types: Types, a: Tensor, source: Tensor, *_: Any) -> Tensor:
    return w.expand(w.cast(source, types[0].dtype), types[0].shape)


def _zeros(w: Writer, types: Types, *_: Any) -> Tensor:
    return w.filled(0, types[0])


def _counted(
    w: Writer, types: Types, length: int, start: int = 0, step: int = 1, *_: Any
) -> Tensor:
    numbers = torch.arange(length, dtype=torch.int64) * step + start
    return w.constant(numbers.to(DTYPES[types[0].dtype]))


def _diagonal(
    w: Writer, types: Types, a: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    places = torch.arange(a.size).reshape(a.shape).diagonal(offset, dim1, dim2)
    return w.take(a, places)


def _strided(
    w: Writer,
    types: Types,
    a: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> Tensor:
    """Elements of a tensor that lies contiguous: a slice where that is one, else one by one."""
    places = torch.arange(a.size).as_strided(size, stride, offset or 0).contiguous()
    count, first = numel(size), offset or 0
    if torch.equal(places.flatten(), torch.arange(first, first + count)):
        return w.reshape(w.along(w.reshape(a, [a.size]), 0, first, first + count), size)
    return w.take(a, places)


def add(table: Table) -> None:
    """Rows of this file."""
    for names, row in ((_SAME, _same), (_RESHAPES, _reshaped), (_ZEROS, _zeros)):
        table.update(dict.fromkeys(names, row))
    table["prims.broadcast_in_dim"], table["aten.expand"] = _broadcast, _expanded
    table["prims.transpose"] = table["aten.permute"] = _permuted
    table["prims.rev"] = table["aten.flip"] = _reversed
    table["prims.cat"] = table["aten.cat"] = _joined
    table["aten.slice.Tensor"], table["aten.select.int"] = _sliced, _selected
    table["aten.diagonal"], table["aten.constant_pad_nd"] = _diagonal, _padded
    for name in ("aten.full_like", "aten.full", "prims.full", "prims.full_like"):
        table[name] = _filled(1)
    table["prims.scalar_tensor"] = table["aten.scalar_tensor"] = _filled(0)
    table["prims.iota"], table["aten.copy"] = _counted, _copied
    table["aten.as_strided"] = table["prims.as_strided"] = _strided
