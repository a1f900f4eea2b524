# SPDX-License-Identifier: Apache-2.0
"""Reductions over dims, and along one."""

from collections.abc import Sequence
from typing import Any

from spmdx._segments.segment import Type
from spmdx._targets.onnx_rows.elementwise import Types
from spmdx._targets.onnx_rows.writer import SHORT, Table, Tensor, Writer, dims_of, numel, refuse


def computed(w: Writer, a: Tensor) -> Tensor:
    """In f32 where it is short: sums are rounded once."""
    return w.cast(a, "f32") if a.dtype in SHORT else a


def summed(w: Writer, a: Tensor, dims: Sequence[int]) -> Tensor:
    """Integers are added up as products with 1: sums of ONNX Runtime's are of doubles."""
    shape = [size for d, size in enumerate(a.shape) if d not in dims]
    if a.size == 0:
        return w.filled(0, Type(a.dtype, tuple(shape)))
    if a.is_float:
        return w.reduce("ReduceSum", a, dims)
    rows, count = _in_rows(w, a, dims)
    ones = w.filled(1, Type(a.dtype, (count, 1)))
    return w.reshape(w.one("MatMul", [rows, ones], [rows.shape[0], 1]), shape)


def _in_rows(w: Writer, a: Tensor, dims: Sequence[int]) -> tuple[Tensor, int]:
    """What is reduced as the last of two dims."""
    kept = [d for d in range(len(a.shape)) if d not in dims]
    count = numel([a.shape[d] for d in dims])
    last = w.transpose(a, [*kept, *dims])
    return w.reshape(last, [a.size // max(count, 1), count]), count


def _sum(w: Writer, types: Types, a: Tensor, dims: Any = None, *_: Any) -> Tensor:
    wide = w.cast(a, types[0].dtype)
    found = summed(w, computed(w, wide), dims_of(dims, len(a.shape)))
    return w.cast(found, types[0].dtype)


def _product(w: Writer, types: Types, a: Tensor, dims: Any = None, *_: Any) -> Tensor:
    """By halves, as products of ONNX Runtime's are of doubles too."""
    kind = types[0]
    if a.size == 0:
        return w.filled(1, kind)
    wide = computed(w, w.cast(a, kind.dtype))
    rows, count = _in_rows(w, wide, dims_of(dims, len(a.shape)))
    while count > 1:
        half = count // 2
        made = w.op("Mul", w.along(rows, 1, 0, half), w.along(rows, 1, half, 2 * half))
        rows = w.concat([made, w.along(rows, 1, 2 * half, count)], 1)
        count -= half
    return w.cast(w.reshape(rows, kind.shape), kind.dtype)


def extreme(w: Writer, a: Tensor, dims: Sequence[int], kind: str) -> Tensor:
    """The largest or least, or NaN if there is one, which ONNX Runtime passes over."""
    if a.size == 0:
        refuse("the extreme of no elements is an error, which no node raises")
    found = w.reduce(f"Reduce{kind}", a, dims)
    if not a.is_float or not dims:
        return found
    is_none = w.reduce("ReduceMax", w.is_nan(a), dims)
    return w.where(is_none, w.number(float("nan"), a.dtype), found)


def _extreme_over(kind: str) -> Any:
    def row(w: Writer, types: Types, a: Tensor, dims: Any = None, *_: Any) -> Tensor:
        return w.reshape(extreme(w, a, dims_of(dims, len(a.shape)), kind), types[0].shape)

    return row


def _extreme_of_all(kind: str) -> Any:
    return lambda w, types, a: extreme(w, a, dims_of(None, len(a.shape)), kind)


def _place(w: Writer, a: Tensor, dim: int, kind: str) -> Tensor:
    """Of the first extreme along a dim, or of the first NaN."""
    if a.size == 0:
        refuse("the extreme of no elements is an error, which no node raises")
    shape = [size for d, size in enumerate(a.shape) if d != dim]
    found = _first_place(w, a, shape, dim, kind)
    if not a.is_float:
        return found
    nan = w.is_nan(a)
    place = _first_place(w, w.cast(nan, "u8"), shape, dim, "Max")
    return w.where(w.reduce("ReduceMax", nan, [dim]), place, found)


def _first_place(w: Writer, a: Tensor, shape: Sequence[int], dim: int, kind: str) -> Tensor:
    given = w.cast(a, w.computed(f"Arg{kind}", a.dtype))
    return w.many(f"Arg{kind}", [given], [("i64", shape)], axis=dim, keepdims=0)[0]


def _place_of_extreme(kind: str) -> Any:
    def row(
        w: Writer, types: Types, a: Tensor, dim: int | None = None, keepdim: bool = False
    ) -> Tensor:
        if dim is None or not a.shape:
            a, dim = w.reshape(a, [a.size]), 0
        return w.reshape(_place(w, a, dim % len(a.shape), kind), types[0].shape)

    return row


def _extreme_of_dim(kind: str) -> Any:
    def row(w: Writer, types: Types, a: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
        a = a if a.shape else w.reshape(a, [1])
        dim %= len(a.shape)
        place = _place(w, a, dim, kind)
        found = extreme(w, a, [dim], kind)
        return [w.reshape(found, types[0].shape), w.reshape(place, types[1].shape)]

    return row


def _variance(
    w: Writer, types: Types, a: Tensor, dims: Any = None, correction: float = 1, *_: Any
) -> Tensor:
    """The mean of squared distances from the mean, of which `correction` are not free."""
    over = dims_of(dims, len(a.shape))
    wide = computed(w, a)
    count = numel([a.shape[d] for d in over])
    kept = [1 if d in over else size for d, size in enumerate(a.shape)]
    mean = w.op("Div", summed(w, wide, over), w.number(float(count), wide.dtype))
    off = w.op("Sub", wide, w.reshape(mean, kept))
    squares = summed(w, w.op("Mul", off, off), over)
    free = max(0.0, count - (1 if correction is None else correction))
    return w.cast(w.op("Div", squares, w.number(free, wide.dtype)), a.dtype)


def _cumulated(w: Writer, types: Types, a: Tensor, dim: int, *_: Any) -> Tensor:
    dtype = types[0].dtype
    if not a.shape:
        return w.cast(a, dtype)
    wide = computed(w, w.cast(a, dtype))
    axis = w.number(dim % len(a.shape), "i64")
    native = w.cast(wide, w.computed("CumSum", wide.dtype))
    (made,) = w.many("CumSum", [native, axis], [(native.dtype, a.shape)])
    return w.cast(made, dtype)


def _products_along(w: Writer, types: Types, a: Tensor, dim: int, *_: Any) -> Tensor:
    """Each times the one 1, 2, 4 … places before it."""
    dtype = types[0].dtype
    made = computed(w, w.cast(a, dtype))
    if not a.shape:
        return w.cast(made, dtype)
    dim %= len(a.shape)
    step = 1
    while step < a.shape[dim]:
        first = w.along(made, dim, 0, step)
        before = w.along(made, dim, 0, a.shape[dim] - step)
        later = w.along(made, dim, step, a.shape[dim])
        made = w.concat([first, w.op("Mul", later, before)], dim)
        step *= 2
    return w.cast(made, dtype)


def _softmax(kind: str) -> Any:
    def row(w: Writer, types: Types, a: Tensor, dim: int, *_: Any) -> Tensor:
        if not a.shape:
            wide = w.reshape(w.cast(a, types[0].dtype), [1])
            return w.reshape(w.one(kind, [wide], [1], axis=0), ())
        wide, dim = w.cast(a, types[0].dtype), dim % len(a.shape)
        if kind == "LogSoftmax" and wide.dtype == "f64":
            return _log_softmax(w, wide, dim)
        return w.one(kind, [wide], a.shape, axis=dim)

    return row


def _log_softmax(w: Writer, a: Tensor, dim: int) -> Tensor:
    """By its parts, as the kernel of f64 loses the NaN that is made of infinities."""
    kept = [1 if d == dim else size for d, size in enumerate(a.shape)]
    off = w.op("Sub", a, w.reshape(extreme(w, a, [dim], "Max"), kept))
    total = w.reduce("ReduceSum", w.op("Exp", off), [dim])
    return w.op("Sub", off, w.reshape(w.op("Log", total), kept))


def _sorted(w: Writer, types: Types, a: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """By TopK of all, which keeps the order of equal numbers; NaN is beyond all others."""
    if not a.shape:
        return [a, w.filled(0, types[1])]
    dim %= len(a.shape)
    if not a.is_float:
        return _top(w, a, dim, descending)
    nan = w.is_nan(a)
    _, first = _top(w, w.cast(nan, "u8"), dim, descending)
    key = w.where(nan, w.number(float("inf"), a.dtype), a)
    _, then = _top(w, _gathered(w, key, first, dim), dim, descending)
    places = _gathered(w, first, then, dim)
    return [_gathered(w, a, places, dim), places]


def _top(w: Writer, a: Tensor, dim: int, descending: bool) -> list[Tensor]:
    given = w.cast(a, w.computed("TopK", a.dtype))
    types = [(given.dtype, a.shape), ("i64", a.shape)]
    told = [given, w.integers([a.shape[dim]])]
    values, places = w.many("TopK", told, types, axis=dim, largest=int(descending))
    return [w.cast(values, a.dtype), places]


def _gathered(w: Writer, a: Tensor, places: Tensor, dim: int) -> Tensor:
    return w.many("GatherElements", [a, places], [(a.dtype, places.shape)], axis=dim)[0]


def _stably_sorted(
    w: Writer, types: Types, a: Tensor, stable: Any, dim: int = -1, descending: bool = False
) -> Any:
    return _sorted(w, types, a, dim, descending)


def add(table: Table) -> None:
    """Rows of this file."""
    table["prims.sum"], table["prims.prod"] = _sum, _product
    for place, kind in (("amax", "Max"), ("amin", "Min")):
        table[f"prims.{place}"] = table[f"aten.{place}"] = _extreme_over(kind)
    for place, kind in (("max", "Max"), ("min", "Min")):
        table[f"aten.{place}"] = _extreme_of_all(kind)
        table[f"aten.{place}.dim"] = _extreme_of_dim(kind)
        table[f"aten.arg{place}"] = _place_of_extreme(kind)
    table["prims.var"], table["aten.cumsum"] = _variance, _cumulated
    table["aten.cumprod"] = _products_along
    table["aten._softmax"], table["aten._log_softmax"] = _softmax("Softmax"), _softmax("LogSoftmax")
    table["aten.sort"], table["aten.sort.stable"] = _sorted, _stably_sorted
