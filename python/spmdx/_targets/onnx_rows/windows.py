# SPDX-License-Identifier: Apache-2.0
"""Pools: each place of a window is a slice of the whole, so that there is one slice for each."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from spmdx._segments.segment import DTYPES, Type
from spmdx._targets.onnx_rows.elementwise import Types
from spmdx._targets.onnx_rows.reductions import computed
from spmdx._targets.onnx_rows.writer import Table, Tensor, Writer, numel, refuse

_MOST = 128  # places of a window


@dataclasses.dataclass(frozen=True)
class _Pool:
    """Over the last dims."""

    size: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]


def _pool(dims: int, size: Any, stride: Any, padding: Any, dilation: Any = 1) -> _Pool:
    def whole(given: Any, missing: Any) -> list[int]:
        given = [given] if isinstance(given, int) else list(given or missing)
        return given * dims if len(given) == 1 else given

    sizes = whole(size, [1])
    found = _Pool(sizes, whole(stride, sizes), whole(padding, [0]), whole(dilation, [1]))
    if numel(sizes) > _MOST:
        refuse(f"a window has more than {_MOST} places")
    return found


def _padded(w: Writer, a: Tensor, of: _Pool, out: Sequence[int], value: float) -> Tensor:
    """Such that windows that give ``out`` reach beyond nothing."""
    before = len(a.shape) - len(of.size)
    low, high = [0] * before + of.padding, [0] * before
    for d, size in enumerate(of.size):
        reach = (out[before + d] - 1) * of.stride[d] + of.dilation[d] * (size - 1) + 1
        high.append(max(0, reach - a.shape[before + d] - of.padding[d]))
    return w.pad(a, low, high, value)


def _places(w: Writer, whole: Tensor, of: _Pool, out: Sequence[int]) -> Iterator[Tensor]:
    """What windows have at each of their places, in their order."""
    before = len(out) - len(of.size)
    steps = [1] * before + of.stride
    for place in itertools.product(*map(range, of.size)):
        starts = [0] * before + [of.dilation[d] * at for d, at in enumerate(place)]
        ends = [
            start + (n - 1) * step + 1 for start, n, step in zip(starts, out, steps, strict=True)
        ]
        ends[:before] = whole.shape[:before]
        yield w.slice(whole, starts, ends, steps)


def _require_elements(a: Tensor, types: Types) -> None:
    if not a.size or not numel(types[0].shape):
        refuse("a pool of no elements")


def _max_pool(dims: int) -> Any:
    def row(
        w: Writer,
        types: Types,
        a: Tensor,
        size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> list[Tensor]:
        """NaN is the largest, and of many the last."""
        _require_elements(a, types)
        of, out = _pool(dims, size, stride, padding, dilation), types[0].shape
        plane = a.shape[-dims:]
        lead = [1] * (len(a.shape) - dims)
        numbers = w.constant(torch.arange(numel(plane)).reshape([*lead, *plane]))
        least = -math.inf if a.is_float else torch.iinfo(DTYPES[a.dtype]).min
        values = _places(w, _padded(w, a, of, out, least), of, out)
        there = _padded(w, numbers, of, [*lead, *out[-dims:]], -1)
        indices = _places(w, there, of, [*lead, *out[-dims:]])
        best, at = next(values), next(indices)
        for value, index in zip(values, indices, strict=True):
            wins = w.compare("Greater", value, best)
            if a.is_float:
                wins = w.op("Or", wins, w.is_nan(value))
            # What lies outside is no place: the first that is one is taken, whatever it has.
            wins = w.op("Or", wins, w.compare("Less", at, w.number(0, "i64")))
            wins = w.op("And", wins, w.compare("GreaterOrEqual", index, w.number(0, "i64")))
            best, at = w.where(wins, value, best), w.where(wins, index, at)
        return [best, w.expand(at, types[1].shape)]

    return row


def _max_pool_backward(dims: int) -> Any:
    def row(w: Writer, types: Types, grad: Tensor, a: Tensor, *rest: Any) -> Tensor:
        """Each element of the gradient goes to where the largest one was."""
        _require_elements(grad, types)
        index, shape = rest[-1], types[0].shape
        size = numel(shape[-dims:])
        rows = numel(shape) // size
        each = grad.size // rows
        given = w.reshape(computed(w, grad), [rows, each])
        zeros = w.filled(0, Type(given.dtype, (rows, size)))
        told = [zeros, w.reshape(index, [rows, each]), given]
        kind = (given.dtype, zeros.shape)
        (made,) = w.many("ScatterElements", told, [kind], axis=1, reduction="add")
        return w.cast(w.reshape(made, shape), grad.dtype)

    return row


def _divisors(
    of: _Pool, plane: Sequence[int], out: Sequence[int], counts_pads: Any, told: Any
) -> torch.Tensor | float:
    """By how many elements each window's sum is divided."""
    if told:
        return float(told)
    lists = []
    for d, size in enumerate(plane):
        counts = []
        for i in range(out[d]):
            start = i * of.stride[d] - of.padding[d]
            end = min(start + of.size[d], size + of.padding[d])
            inside = min(end, size) - max(start, 0)
            counts.append(end - start if counts_pads else inside)
        lists.append(torch.tensor(counts, dtype=torch.float64))
    found = lists[0]
    for each in lists[1:]:
        found = found.unsqueeze(-1) * each
    return float(found.flatten()[0]) if bool((found == found.flatten()[0]).all()) else found


def _shared(w: Writer, a: Tensor, divisors: torch.Tensor | float) -> Tensor:
    if isinstance(divisors, float):
        return w.op("Div", a, w.number(divisors, a.dtype))
    return w.op("Div", a, w.constant(divisors.to(DTYPES[a.dtype])))


def _average_pool(dims: int) -> Any:
    def row(
        w: Writer,
        types: Types,
        a: Tensor,
        size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        counts_pads: bool = True,
        told: int | None = None,
    ) -> Tensor:
        _require_elements(a, types)
        if not a.is_float:
            refuse("means of integers")
        of, out = _pool(dims, size, stride, padding), types[0].shape
        wide = computed(w, a)
        places = _places(w, _padded(w, wide, of, out, 0), of, out)
        total = next(places)
        for place in places:
            total = w.op("Add", total, place)
        by = _divisors(of, a.shape[-dims:], out[-dims:], counts_pads, told)
        return w.cast(_shared(w, total, by), types[0].dtype)

    return row


def _average_pool_backward(dims: int) -> Any:
    def row(
        w: Writer,
        types: Types,
        grad: Tensor,
        a: Tensor,
        size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        counts_pads: bool = True,
        told: int | None = None,
    ) -> Tensor:
        """Shares of each window, which are added where they belong by a transposed convolution."""
        _require_elements(grad, types)
        of, shape = _pool(dims, size, stride, padding), types[0].shape
        wide = computed(w, grad)
        out, plane = grad.shape[-dims:], shape[-dims:]
        share = _shared(w, wide, _divisors(of, plane, out, counts_pads, told))
        rows = numel(shape) // numel(plane)
        share = w.reshape(share, [rows, 1, *out])
        ones = w.filled(1, Type(wide.dtype, (1, 1, *of.size)))
        whole = [(n - 1) * s + k for n, s, k in zip(out, of.stride, of.size, strict=True)]
        made = w.one("ConvTranspose", [share, ones], [rows, 1, *whole], strides=of.stride)
        low = [-n for n in of.padding]
        high = [n - m - p for n, m, p in zip(plane, whole, low, strict=True)]
        made = w.pad(made, [0, 0, *low], [0, 0, *high])
        return w.cast(w.reshape(made, shape), types[0].dtype)

    return row


def add(table: Table) -> None:
    """Rows of this file."""
    for dims in (2, 3):
        table[f"aten.max_pool{dims}d_with_indices"] = _max_pool(dims)
        table[f"aten.max_pool{dims}d_with_indices_backward"] = _max_pool_backward(dims)
        table[f"aten.avg_pool{dims}d"] = _average_pool(dims)
        table[f"aten.avg_pool{dims}d_backward"] = _average_pool_backward(dims)
