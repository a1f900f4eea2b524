# SPDX-License-Identifier: Apache-2.0
"""What nodes of ONNX are written with: tensors, constants, and the dtypes that have kernels."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnx import NodeProto, TensorProto, helper

from spmdx._segments.segment import DTYPES, Type

ELEMENTS = {
    "f64": TensorProto.DOUBLE,
    "f32": TensorProto.FLOAT,
    "bf16": TensorProto.BFLOAT16,
    "f16": TensorProto.FLOAT16,
    "i64": TensorProto.INT64,
    "i32": TensorProto.INT32,
    "i16": TensorProto.INT16,
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "b8": TensorProto.BOOL,
}
FLOATS = ("f64", "f32", "bf16", "f16")
SHORT = ("bf16", "f16")
_REAL = frozenset({"f32", "f64"})
_INTS = frozenset({"i64", "i32", "i16", "i8", "u8"})
_LONG = frozenset({"i64", "i32"})
# Dtypes in which ONNX Runtime's kernels for the CPU compute, where these are not all. Floats of 16
# bits are left out: PyTorch computes in f32, and rounds once.
_KERNELS = {
    **dict.fromkeys(("Neg",), _REAL | _INTS - {"u8"}),
    **dict.fromkeys(("Abs", "Sign", "Add", "Sub", "Mul", "Div", "Mod"), _REAL | _INTS),
    **dict.fromkeys(("Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Tanh"), _REAL),
    **dict.fromkeys(("Ceil", "Floor", "Round", "Softmax", "LogSoftmax", "Pow"), _REAL),
    **dict.fromkeys(("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"), {"f32"}),
    **dict.fromkeys(("Asinh", "Acosh", "Atanh", "Erf", "Gelu"), {"f32"}),
    **dict.fromkeys(("Conv", "ConvTranspose"), {"f32"}),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), {"b8"}),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), _INTS),
    **dict.fromkeys(("Max", "Min"), _REAL | _INTS - {"i16"}),
    "Equal": _REAL | _INTS | {"b8"},
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _REAL | _INTS),
    "Where": _REAL | _INTS - {"i16"} | {"f16"},
    "Expand": _REAL | _INTS | {"f16", "b8"},
    "Pad": _REAL | _INTS - {"i16"} | {"f16", "b8"},
    "ReduceSum": _REAL,
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _REAL | _LONG | {"i8", "u8", "b8"}),
    **dict.fromkeys(("ArgMax", "ArgMin"), _REAL | _LONG | {"i8", "u8"}),
    **dict.fromkeys(("CumSum", "MatMul"), _REAL | _LONG),
    "TopK": _REAL | _INTS,
}
# Where a number of one dtype is one of another, exactly; integers wrap around when they come back.
_WIDER = {"bf16": "f32", "f16": "f32", "b8": "u8", "u8": "i32", "i8": "i32", "i16": "i32"}
_WIDER["i32"] = "i64"
# OpenVINO says that NaN is greater than all numbers, and not that it is less.
_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A value of the graph."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def size(self) -> int:
        return numel(self.shape)


def numel(shape: Sequence[int]) -> int:
    """How many elements a tensor of this shape has."""
    found = 1
    for size in shape:
        found *= size
    return found


def refuse(why: str) -> None:
    """This op, or this use of it, is not written."""
    raise ValueError(f"it is not written as ONNX: {why}")


class Writer:
    """A graph as it grows.

    Attributes:
        nodes: in an order in which each reads what nodes before it made.
        initializers: constants, by name.
        facts: scalars that are true, unless PyTorch's kernels would raise.
    """

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}
        self.facts: list[Tensor] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._narrow: dict[str, Tensor] = {}  # what was spread, by the name of what became of it
        self._next = 0

    def new(self, dtype: str, shape: Sequence[int]) -> Tensor:
        """A name for a value that a node is going to make."""
        self._next += 1
        return Tensor(f"t{self._next}", dtype, tuple(shape))

    def many(
        self,
        kind: str,
        operands: Sequence[Tensor | None],
        types: Sequence[tuple[str, Sequence[int]]],
        **attributes: Any,
    ) -> list[Tensor]:
        """A node as it is told."""
        made = [self.new(dtype, shape) for dtype, shape in types]
        names = [each.name if each else "" for each in operands]
        self.nodes.append(helper.make_node(kind, names, [t.name for t in made], **attributes))
        return made

    def one(
        self, kind: str, operands: Sequence[Tensor | None], shape: Sequence[int], **attributes: Any
    ) -> Tensor:
        """A node of one result, in the dtype of the first operand or in one that has a kernel."""
        first = operands[0]
        assert first is not None
        dtype = self.computed(kind, first.dtype)
        given = [
            self.cast(each, dtype) if each and each.dtype == first.dtype else each
            for each in operands
        ]
        (made,) = self.many(kind, given, [(dtype, shape)], **attributes)
        return self.cast(made, first.dtype)

    def computed(self, kind: str, dtype: str) -> str:
        """The dtype in which a kind of node is computed."""
        native, found = _KERNELS.get(kind), dtype
        while native is not None and found not in native:
            if found not in _WIDER:
                refuse(f"{kind} has no kernel of {dtype}")
            found = _WIDER[found]
            if found == "u8" and "u8" not in native:
                found = "i32"
        return found

    def op(self, kind: str, *operands: Tensor, **attributes: Any) -> Tensor:
        """An elementwise node, of operands of one dtype that are spread as NumPy does."""
        shape = torch.broadcast_shapes(*(each.shape for each in operands))
        return self._elementwise(kind, operands, shape, None, attributes)

    def compare(self, kind: str, a: Tensor, b: Tensor) -> Tensor:
        """Whether one is ``"Less"`` than the other, or the like."""
        if kind in _TURNED:
            kind, a, b = _TURNED[kind], b, a
        shape = torch.broadcast_shapes(a.shape, b.shape)
        return self._elementwise(kind, (a, b), shape, "b8", {})

    def _elementwise(
        self,
        kind: str,
        operands: Sequence[Tensor],
        shape: Sequence[int],
        to: str | None,
        attributes: dict[str, Any],
    ) -> Tensor:
        given = self.narrowed(operands, shape)
        dtype = self.computed(kind, given[0].dtype)
        inputs = [self.cast(each, dtype) for each in given]
        (made,) = self.many(kind, inputs, [(to or dtype, shape)], **attributes)
        return made if to else self.cast(made, operands[0].dtype)

    def narrowed(self, operands: Sequence[Tensor], shape: Sequence[int]) -> list[Tensor]:
        """Operands before they were spread, where the others have all of the shape."""
        given = list(operands)
        for i, each in enumerate(given):
            source = self._narrow.get(each.name)
            others = [other.shape for j, other in enumerate(given) if j != i]
            if source and torch.broadcast_shapes(source.shape, *others) == tuple(shape):
                given[i] = source
        return given

    def where(self, holds: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Of two tensors one by one. ONNX Runtime makes 0 of a -0 of the first."""
        shape = torch.broadcast_shapes(holds.shape, a.shape, b.shape)
        condition, first, second = self.narrowed((holds, a, b), shape)
        dtype = self.computed("Where", a.dtype)
        given = [condition, self.cast(first, dtype), self.cast(second, dtype)]
        (made,) = self.many("Where", given, [(dtype, shape)])
        return self.cast(made, a.dtype)

    def is_nan(self, a: Tensor) -> Tensor:
        return self.many("IsNaN", [a], [("b8", a.shape)])[0]

    def is_infinite(self, a: Tensor, **signs: int) -> Tensor:
        return self.many("IsInf", [a], [("b8", a.shape)], **signs)[0]

    def bits(self, a: Tensor) -> Tensor:
        """Of floats, as an integer of as many."""
        to = {"f64": "i64", "f32": "i32"}.get(a.dtype, "i16")
        return self.many("BitCast", [a], [(to, a.shape)], to=ELEMENTS[to])[0]

    def cast(self, a: Tensor, dtype: str) -> Tensor:
        """The same numbers in another dtype."""
        if a.dtype == dtype:
            return a
        source = self._narrow.get(a.name)
        if source is not None:
            return self.expand(self.cast(source, dtype), a.shape)
        return self.many("Cast", [a], [(dtype, a.shape)], to=ELEMENTS[dtype])[0]

    def constant(self, of: torch.Tensor) -> Tensor:
        """A tensor whose numbers are known."""
        dtype = next(name for name, each in DTYPES.items() if each == of.dtype)
        shape = tuple(of.shape)
        dense = torch.empty(shape, dtype=of.dtype).copy_(of)
        data = dense.reshape(-1).view(torch.uint8).numpy().tobytes()
        name = self._constants.setdefault((dtype, shape, data), f"c{len(self._constants)}")
        if name not in self.initializers:
            proto = TensorProto(name=name, data_type=ELEMENTS[dtype], dims=shape, raw_data=data)
            self.initializers[name] = proto
        return Tensor(name, dtype, shape)

    def number(self, value: float, dtype: str) -> Tensor:
        """A scalar."""
        return self.constant(
            torch.tensor(
                value, dtype=torch.float64 if dtype in FLOATS and isinstance(value, float) else None
            ).to(DTYPES[dtype])
        )

    def integers(self, values: Sequence[int]) -> Tensor:
        """A row of them, as nodes are told sizes."""
        return self.constant(torch.tensor(list(values), dtype=torch.int64))

    def filled(self, value: float, kind: Type) -> Tensor:
        """A tensor that is one number everywhere."""
        if numel(kind.shape) == 0:
            return self.constant(torch.empty(kind.shape, dtype=DTYPES[kind.dtype]))
        return self.expand(self.number(value, kind.dtype), kind.shape)

    def require(self, holds: Tensor) -> None:
        """PyTorch's kernels would raise where one of these is false."""
        if holds.size == 0:
            return
        if holds.shape:
            dims = self.integers(range(len(holds.shape)))
            (holds,) = self.many("ReduceMin", [holds, dims], [("b8", ())], keepdims=0)
        self.facts.append(holds)

    def reshape(self, a: Tensor, shape: Sequence[int]) -> Tensor:
        if a.shape == tuple(shape):
            return a
        return self.many("Reshape", [a, self.integers(shape)], [(a.dtype, shape)], allowzero=1)[0]

    def expand(self, a: Tensor, shape: Sequence[int]) -> Tensor:
        """Spread as NumPy does; ops that spread their operands themselves take it as it was."""
        if a.shape == tuple(shape):
            return a
        source = self._narrow.get(a.name, a)
        lead = (1,) * (len(shape) - len(source.shape))
        made = self.one("Expand", [source, self.integers(shape)], shape)
        self._narrow[made.name] = source if not lead else self.reshape(source, lead + source.shape)
        return made

    def transpose(self, a: Tensor, dims: Sequence[int]) -> Tensor:
        if list(dims) == list(range(len(a.shape))):
            return a
        shape = [a.shape[d] for d in dims]
        return self.many("Transpose", [a], [(a.dtype, shape)], perm=list(dims))[0]

    def slice(
        self, a: Tensor, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = ()
    ) -> Tensor:
        """Of all dims."""
        steps = steps or [1] * len(a.shape)
        shape = [len(range(*each)) for each in zip(starts, ends, steps, strict=True)]
        whole = zip(a.shape, starts, ends, steps, strict=True)
        changed = [d for d, (n, *each) in enumerate(whole) if each != [0, n, 1]]
        if not changed:
            return a
        rows = [[row[d] for d in changed] for row in (starts, ends)]
        told = [*rows, changed, [steps[d] for d in changed]]
        return self.many("Slice", [a, *map(self.integers, told)], [(a.dtype, shape)])[0]

    def along(self, a: Tensor, dim: int, start: int, end: int, step: int = 1) -> Tensor:
        """A slice of one dim."""
        starts, ends, steps = [0] * len(a.shape), list(a.shape), [1] * len(a.shape)
        starts[dim], ends[dim], steps[dim] = start, end, step
        return self.slice(a, starts, ends, steps)

    def pad(self, a: Tensor, low: Sequence[int], high: Sequence[int], value: float = 0) -> Tensor:
        """With a number, or less where a pad is negative."""
        starts = [max(0, -n) for n in low]
        ends = [size - max(0, -n) for size, n in zip(a.shape, high, strict=True)]
        a = self.slice(a, starts, ends)
        low, high = [max(0, n) for n in low], [max(0, n) for n in high]
        if not any([*low, *high]):
            return a
        sizes = zip(low, a.shape, high, strict=True)
        dtype = self.computed("Pad", a.dtype)
        given = [self.cast(a, dtype), self.integers([*low, *high]), self.number(value, dtype)]
        (made,) = self.many("Pad", given, [(dtype, [sum(each) for each in sizes])])
        return self.cast(made, a.dtype)

    def concat(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        parts = [part for part in parts if part.size]
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[dim] = sum(part.shape[dim] for part in parts)
        return self.many("Concat", parts, [(parts[0].dtype, shape)], axis=dim)[0]

    def reduce(self, kind: str, a: Tensor, dims: Sequence[int]) -> Tensor:
        """Over dims, which are gone."""
        if not dims:
            return a
        shape = [size for d, size in enumerate(a.shape) if d not in dims]
        return self.one(kind, [a, self.integers(dims)], shape, keepdims=0)

    def take(self, a: Tensor, places: torch.Tensor) -> Tensor:
        """Elements of a tensor by their places among all, which are known."""
        flat = self.reshape(a, [a.size])
        index = self.constant(places.long())
        return self.many("Gather", [flat, index], [(a.dtype, places.shape)], axis=0)[0]


Row = Callable[..., Any]
Table = dict[str, Row]


def dims_of(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    """Counted from the start; all, if none is said."""
    if dims is None or dims == []:
        return list(range(rank))
    given = [dims] if isinstance(dims, int) else dims
    return sorted({dim % rank for dim in given}) if rank else []
