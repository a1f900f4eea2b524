# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops: of dtypes that are the same already, as decompositions leave them."""

from typing import Any

from spmdx._segments.segment import Type
from spmdx._targets.onnx_rows.writer import Table, Tensor, Writer, refuse

Types = tuple[Type, ...]
_LEAST = {"i8": -(2**7), "i16": -(2**15), "i32": -(2**31), "i64": -(2**63)}


def operand(w: Writer, of: Any, dtype: str) -> Tensor:
    """A tensor or a number, in a dtype."""
    return w.cast(of, dtype) if isinstance(of, Tensor) else w.number(of, dtype)


def pair(w: Writer, types: Types, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Both in the dtype of the first tensor that is no scalar beside another."""
    tensors = [each for each in (a, b) if isinstance(each, Tensor)]
    wide = [each for each in tensors if each.shape or not types[0].shape]
    dtype = (wide or tensors)[0].dtype
    return operand(w, a, dtype), operand(w, b, dtype)


def _unary(kind: str) -> Any:
    return lambda w, types, a: w.op(kind, a)


def _binary(kind: str) -> Any:
    return lambda w, types, a, b: w.op(kind, *pair(w, types, a, b))


def _compare(kind: str) -> Any:
    return lambda w, types, a, b: w.compare(kind, *pair(w, types, a, b))


def _not_equal(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
    return w.op("Not", w.compare("Equal", *pair(w, types, a, b)))


def _rounded(kind: str) -> Any:
    return lambda w, types, a: w.op(kind, a) if a.is_float else a


def _bits(kind: str) -> Any:
    """Of integers, or of bools by the node of another name."""

    def row(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
        first, second = pair(w, types, a, b)
        return w.op(kind if first.dtype == "b8" else f"Bitwise{kind}", first, second)

    return row


def _inverted(w: Writer, types: Types, a: Tensor) -> Tensor:
    return w.op("Not" if a.dtype == "b8" else "BitwiseNot", a)


def _divisor(w: Writer, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """An integer that may be divided by, which is 1 where it was 0 or -1; and where it was -1.

    Processors trap at a division by 0, and at that of the least number by -1.
    """
    zero = w.compare("Equal", b, w.number(0, b.dtype))
    w.require(w.op("Not", zero))
    least = w.compare("Equal", b, w.number(-1, b.dtype)) if b.dtype in _LEAST else zero
    return w.where(w.op("Or", zero, least), w.number(1, b.dtype), b), least


def _divided(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
    first, second = pair(w, types, a, b)
    if first.is_float:
        return w.op("Div", first, second)
    by, is_least = _divisor(w, first, second)
    made = w.op("Div", first, by)
    return w.where(is_least, w.op("Neg", first), made) if first.dtype in _LEAST else made


def _fmod(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
    """The remainder that has the sign of the dividend."""
    first, second = pair(w, types, a, b)
    by = second if first.is_float else _divisor(w, first, second)[0]
    return w.op("Mod", first, by, fmod=1)


def _remainder(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
    """The remainder that has the sign of the divisor."""
    first, second = pair(w, types, a, b)
    if not first.is_float:
        return w.op("Mod", first, _divisor(w, first, second)[0])
    rest, zero = w.op("Mod", first, second, fmod=1), w.number(0.0, first.dtype)
    signs = w.op("Xor", w.compare("Less", rest, zero), w.compare("Less", second, zero))
    moves = w.op("And", signs, w.op("Not", w.compare("Equal", rest, zero)))
    return w.where(moves, w.op("Add", rest, second), rest)


def _number_of_two(kind: str) -> Any:
    """Of two numbers the one that is one."""

    def row(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
        first, second = pair(w, types, a, b)
        both = w.op(kind, first, second)
        if not first.is_float:
            return both
        both = w.where(w.is_nan(second), first, both)
        return w.where(w.is_nan(first), second, both)

    return row


def _sign(w: Writer, types: Types, a: Tensor) -> Tensor:
    """That of NaN is 0."""
    if a.dtype == "b8":
        return a
    made = w.op("Sign", a)
    return w.where(w.is_nan(a), w.number(0.0, a.dtype), made) if a.is_float else made


def _truncated(w: Writer, types: Types, a: Tensor) -> Tensor:
    if not a.is_float:
        return a
    is_positive = w.compare("Greater", a, w.number(0.0, a.dtype))
    return w.where(is_positive, w.op("Floor", a), w.op("Ceil", a))


def _absolute(w: Writer, types: Types, a: Tensor) -> Tensor:
    return a if a.dtype in ("b8", "u8") else w.op("Abs", a)


def _where(w: Writer, types: Types, holds: Tensor, a: Any, b: Any) -> Tensor:
    dtype = types[0].dtype
    return w.where(w.cast(holds, "b8"), operand(w, a, dtype), operand(w, b, dtype))


def _converted(w: Writer, types: Types, a: Tensor, *_: Any) -> Tensor:
    return w.cast(a, types[0].dtype)


def _power(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
    first, second = pair(w, types, a, b)
    if not first.is_float:
        refuse("powers of integers are rounded")
    if isinstance(b, float) and b == -0.5:
        return _root_below(w, types, first)
    return w.op("Pow", first, second)


def _root_below(w: Writer, types: Types, a: Tensor) -> Tensor:
    dtype = w.computed("Sqrt", a.dtype)
    return w.cast(w.op("Reciprocal", w.op("Sqrt", w.cast(a, dtype))), a.dtype)


def _is_finite(w: Writer, types: Types, a: Tensor) -> Tensor:
    if not a.is_float:
        return w.filled(True, types[0])
    return w.op("Not", w.op("Or", w.is_nan(a), w.is_infinite(a)))


def _is_nan(w: Writer, types: Types, a: Tensor) -> Tensor:
    return w.is_nan(a) if a.is_float else w.filled(False, types[0])


def _sign_bit(w: Writer, types: Types, a: Tensor) -> Tensor:
    """That of NaN as well."""
    if a.dtype in ("b8", "u8"):
        return w.filled(False, types[0])
    bits = w.bits(a) if a.is_float else a
    return w.cast(w.compare("Less", bits, w.number(0, bits.dtype)), types[0].dtype)


def _negated(w: Writer, types: Types, a: Tensor) -> Tensor:
    return w.op("Neg", a) if a.dtype != "u8" else w.op("Sub", w.number(0, "u8"), a)


def add(table: Table) -> None:
    """Rows of this file."""
    for op in ("exp", "log", "sqrt", "sin", "cos", "tanh", "reciprocal"):
        table[f"prims.{op}"] = _unary(op.capitalize())
    for op in ("ceil", "floor", "round"):
        table[f"prims.{op}"] = _rounded(op.capitalize())
    for op in ("add", "sub", "mul"):
        table[f"prims.{op}"] = _binary(op.capitalize())
    for op in ("and", "or", "xor"):
        table[f"prims.bitwise_{op}"] = _bits(op.capitalize())
    for op, kind in (("lt", "Less"), ("le", "LessOrEqual"), ("gt", "Greater"), ("eq", "Equal")):
        table[f"prims.{op}"] = _compare(kind)
    table["prims.ge"], table["prims.ne"] = _compare("GreaterOrEqual"), _not_equal
    table["prims.maximum"], table["prims.minimum"] = _binary("Max"), _binary("Min")
    table["prims.fmax"], table["prims.fmin"] = _number_of_two("Max"), _number_of_two("Min")
    table["prims.bitwise_not"], table["prims.neg"] = _inverted, _negated
    table["prims.div"], table["prims.fmod"], table["prims.remainder"] = _divided, _fmod, _remainder
    table["prims.sign"], table["prims.trunc"], table["prims.abs"] = _sign, _truncated, _absolute
    table["prims.where"], table["prims.convert_element_type"] = _where, _converted
    table["prims.pow"], table["prims.rsqrt"] = _power, _root_below
    table["prims.isfinite"], table["aten.isnan"] = _is_finite, _is_nan
    table["prims.signbit"] = _sign_bit
