# SPDX-License-Identifier: Apache-2.0
"""Special functions: those that ONNX has, and some by others."""

import math
from typing import Any

from spmdx._targets.onnx_rows.elementwise import Types, pair
from spmdx._targets.onnx_rows.writer import Table, Tensor, Writer

# Of the logarithm of erfc(z) · exp(z²) / t by powers of t = 1 / (1 + z / 2), for z of 0 or more.
# Source: W. H. Press et al., Numerical Recipes, 2nd edition, section 6.2: within 1.2e-7 everywhere.
_OF_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807),
    *(-1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


def _unary(kind: str) -> Any:
    return lambda w, types, a: w.op(kind, a)


def _in(w: Writer, a: Tensor, dtype: str) -> tuple[Tensor, Any]:
    """The tensor in a dtype, and what makes numbers of it."""
    return w.cast(a, dtype), lambda number: w.number(float(number), dtype)


def _less_one(w: Writer, types: Types, a: Tensor) -> Tensor:
    """exp(a) - 1, by W. Kahan's: what exp was rounded by is divided out."""
    x, number = _in(w, a, "f64")
    power, one = w.op("Exp", x), number(1)
    less = w.op("Sub", power, one)
    better = w.op("Mul", less, w.op("Div", x, w.op("Log", power)))
    is_near = w.compare("Less", w.op("Abs", x), one)
    made = w.where(is_near, w.where(w.compare("Equal", power, one), x, better), less)
    return w.cast(made, a.dtype)


def _of_one_more(w: Writer, x: Tensor) -> Tensor:
    """log(1 + x) of f64, in the same way."""
    one = w.number(1.0, "f64")
    more = w.op("Add", x, one)
    log = w.op("Log", more)
    better = w.op("Mul", log, w.op("Div", x, w.op("Sub", more, one)))
    is_near = w.compare("Less", w.op("Abs", x), one)
    return w.where(is_near, w.where(w.compare("Equal", more, one), x, better), log)


def _log_one_more(w: Writer, types: Types, a: Tensor) -> Tensor:
    return w.cast(_of_one_more(w, w.cast(a, "f64")), a.dtype)


def _logarithm(base: float) -> Any:
    def row(w: Writer, types: Types, a: Tensor) -> Tensor:
        x, number = _in(w, a, "f64")
        return w.cast(w.op("Mul", w.op("Log", x), number(1 / math.log(base))), a.dtype)

    return row


def _power_of_two(w: Writer, types: Types, a: Tensor) -> Tensor:
    return w.op("Pow", w.number(2.0, a.dtype), a)


def _complement(w: Writer, types: Types, a: Tensor) -> Tensor:
    """erfc: in f64, so that it is as exact far from 0 as near it."""
    if a.dtype == "f64":
        w.computed("Erf", "f64")
    x, number = _in(w, a, "f64")
    size = w.op("Abs", x)
    t = w.op("Reciprocal", w.op("Add", w.op("Mul", size, number(0.5)), number(1)))
    power = number(_OF_ERFC[-1])
    for factor in reversed(_OF_ERFC[:-1]):
        power = w.op("Add", w.op("Mul", power, t), number(factor))
    far = w.op("Mul", t, w.op("Exp", w.op("Sub", power, w.op("Mul", size, size))))
    is_negative = w.compare("Less", x, number(0))
    whole = w.where(is_negative, w.op("Sub", number(2), far), far)
    near = w.cast(w.op("Sub", w.number(1.0, "f32"), w.op("Erf", w.cast(a, "f32"))), "f64")
    is_near = w.compare("Less", size, number(0.5))
    is_infinite = w.is_infinite(x)
    end = w.where(is_negative, number(2), number(0))
    return w.cast(w.where(is_infinite, end, w.where(is_near, near, whole)), a.dtype)


def _hyperbolic_inverse(kind: str) -> Any:
    """asinh, acosh and atanh by log(1 + x), in f64."""

    def row(w: Writer, types: Types, a: Tensor) -> Tensor:
        x, number = _in(w, a, "f64")
        if kind == "atanh":
            part = w.op("Div", w.op("Mul", x, number(2)), w.op("Sub", number(1), x))
            return w.cast(w.op("Mul", _of_one_more(w, part), number(0.5)), a.dtype)
        size = w.op("Abs", x) if kind == "asinh" else x
        square = w.op("Mul", size, size)
        if kind == "asinh":
            root = w.op("Sqrt", w.op("Add", square, number(1)))
            part = w.op("Add", size, w.op("Div", square, w.op("Add", root, number(1))))
        else:
            less = w.op("Sub", size, number(1))
            both = w.op("Mul", less, w.op("Add", size, number(1)))
            part = w.op("Add", less, w.op("Sqrt", both))
        far = w.op("Add", w.op("Log", size), number(math.log(2)))
        is_far = w.compare("Less", number(1e150), size)
        made = w.where(is_far, far, _of_one_more(w, part))
        if kind == "acosh":  # what is far below 1 has a square
            made = w.where(w.compare("Less", x, number(1)), number(math.nan), made)
        if kind == "asinh":
            made = w.where(w.compare("Less", x, number(0)), w.op("Neg", made), made)
        return w.cast(made, a.dtype)

    return row


def _hyperbolic(kind: str) -> Any:
    """sinh and cosh by exponentials of halves, which are not infinite before them, in f64."""

    def row(w: Writer, types: Types, a: Tensor) -> Tensor:
        if kind == "sinh":
            less = _less_one(w, types, w.cast(a, "f64"))
            one = w.number(1.0, "f64")
            part = w.op("Div", less, w.op("Add", less, one))
            near = w.op("Mul", w.op("Add", less, part), w.number(0.5, "f64"))
        x, number = _in(w, a, "f64")
        size = w.op("Abs", x)
        root = w.op("Exp", w.op("Mul", size, number(0.5)))
        up = w.op("Mul", w.op("Mul", root, number(0.5)), root)
        down = w.op("Mul", w.op("Exp", w.op("Neg", size)), number(0.5))
        if kind == "cosh":
            return w.cast(w.op("Add", up, down), a.dtype)
        far = w.op("Mul", w.op("Sub", up, down), w.op("Sign", x))
        is_near = w.compare("Less", size, number(1))
        return w.cast(w.where(is_near, near, far), a.dtype)

    return row


def _tangent(w: Writer, types: Types, a: Tensor) -> Tensor:
    x = w.cast(a, "f64")
    return w.cast(w.op("Div", w.op("Sin", x), w.op("Cos", x)), a.dtype)


def _angle(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
    """atan2: of a point's two coordinates."""
    y, x = pair(w, types, a, b)
    dtype = w.computed("Atan", y.dtype)
    y, x = w.cast(y, dtype), w.cast(x, dtype)

    def number(value: float) -> Tensor:
        return w.number(value, dtype)

    zero, infinity = number(0.0), number(math.inf)
    up, right = w.op("Abs", y), w.op("Abs", x)
    large, small = w.op("Max", up, right), w.op("Min", up, right)
    ratio = w.where(w.compare("Equal", large, zero), zero, w.op("Div", small, large))
    ratio = w.where(w.compare("Equal", small, infinity), number(1.0), ratio)
    angle = w.op("Atan", ratio)
    angle = w.where(w.compare("Less", right, up), w.op("Sub", number(math.pi / 2), angle), angle)
    # The sign of a zero is that of what is divided by it.
    is_left = w.compare("Less", w.where(w.compare("Equal", x, zero), _reciprocal(w, x), x), zero)
    angle = w.where(is_left, w.op("Sub", number(math.pi), angle), angle)
    is_below = w.compare("Less", w.where(w.compare("Equal", y, zero), _reciprocal(w, y), y), zero)
    return w.cast(w.where(is_below, w.op("Neg", angle), angle), types[0].dtype)


def _reciprocal(w: Writer, a: Tensor) -> Tensor:
    return w.op("Reciprocal", a)


def _hypotenuse(w: Writer, types: Types, a: Any, b: Any) -> Tensor:
    """The larger one times a root of what is at most 2, so that no square is out of range."""
    first, second = (w.op("Abs", each) for each in pair(w, types, a, b))
    large, small = w.op("Max", first, second), w.op("Min", first, second)
    dtype = first.dtype
    zero, infinity = w.number(0.0, dtype), w.number(math.inf, dtype)
    ratio = w.op("Div", small, large)
    square = w.op("Add", w.op("Mul", ratio, ratio), w.number(1.0, dtype))
    found = w.where(w.compare("Equal", large, zero), zero, w.op("Mul", large, w.op("Sqrt", square)))
    is_first = w.compare("Equal", first, infinity)
    is_infinite = w.op("Or", is_first, w.compare("Equal", second, infinity))
    return w.where(is_infinite, infinity, found)


def _gelu(w: Writer, types: Types, a: Tensor, approximate: str = "none") -> Tensor:
    return w.op("Gelu", a, approximate=approximate)


def _gelu_backward(
    w: Writer, types: Types, grad: Tensor, a: Tensor, approximate: str = "none"
) -> Tensor:
    dtype = w.computed("Exp", a.dtype)
    x, slope = w.cast(a, dtype), w.cast(grad, dtype)

    def number(value: float) -> Tensor:
        return w.number(value, dtype)

    half = w.op("Mul", x, number(0.5))
    square = w.op("Mul", x, x)
    if approximate == "none":
        erf = w.op("Erf", w.op("Mul", x, number(math.sqrt(0.5))))
        below = w.op("Mul", w.op("Add", erf, number(1.0)), number(0.5))
        bell = w.op("Exp", w.op("Mul", square, number(-0.5)))
        density = w.op("Mul", bell, number(1 / math.sqrt(2 * math.pi)))
        whole = w.op("Add", below, w.op("Mul", x, density))
    else:
        factor = math.sqrt(2 / math.pi)
        cubic = w.op("Add", w.op("Mul", square, number(0.044715 * factor)), number(factor))
        upper = w.op("Tanh", w.op("Mul", x, cubic))
        inner = w.op("Add", w.op("Mul", square, number(3 * 0.044715 * factor)), number(factor))
        rest = w.op("Sub", number(1.0), w.op("Mul", upper, upper))
        below = w.op("Mul", w.op("Add", upper, number(1.0)), number(0.5))
        whole = w.op("Add", below, w.op("Mul", w.op("Mul", half, rest), inner))
    return w.cast(w.op("Mul", slope, whole), types[0].dtype)


def add(table: Table) -> None:
    """Rows of this file."""
    for op in ("acos", "asin", "atan", "erf"):
        table[f"prims.{op}"] = _unary(op.capitalize())
    for op in ("acosh", "asinh", "atanh"):
        table[f"prims.{op}"] = _hyperbolic_inverse(op)
    for op in ("cosh", "sinh"):
        table[f"prims.{op}"] = _hyperbolic(op)
    table["prims.tan"], table["prims.atan2"] = _tangent, _angle
    table["prims.expm1"], table["prims.log1p"] = _less_one, _log_one_more
    table["prims.log2"], table["prims.log10"] = _logarithm(2), _logarithm(10)
    table["prims.exp2"], table["prims.erfc"] = _power_of_two, _complement
    table["prims.hypot"] = _hypotenuse
    table["aten.gelu"], table["aten.gelu_backward"] = _gelu, _gelu_backward
