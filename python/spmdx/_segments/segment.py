# SPDX-License-Identifier: Apache-2.0
"""A segment: ops of one device that no collective comes between, as compilers are given it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

import spmdx._C as _C

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b8": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last)


@dataclasses.dataclass(frozen=True)
class Type:
    """Of a tensor on one device.

    Attributes:
        dtype: as spmdx writes it: ``"f32"``.
        shape: sizes of the dims.
        is_number: it is a scalar tensor that stands for a number of Python, so that its dtype
            decides nothing about the result's beside a tensor of the same kind (bool, integer,
            float) or a higher one; a float beside integers makes the op's own float of them.
    """

    dtype: str
    shape: tuple[int, ...]
    is_number: bool = False

    def example(self) -> torch.Tensor:
        """A tensor of this type, of ones."""
        return torch.ones(self.shape, dtype=DTYPES[self.dtype])


@dataclasses.dataclass(frozen=True)
class Op:
    """A call of an op.

    Attributes:
        name: ``"aten.add.Tensor"``; the overload ``default`` is left out.
        args: one for each argument of its schema, or fewer, where the others have their defaults:
            constants of Python, :class:`Value`, :class:`Param`, ``torch.dtype`` and
            ``torch.memory_format``, and lists of these.
        first: the number of the first result; others follow it.
        types: of the results.
    """

    name: str
    args: tuple[Any, ...]
    first: int
    types: tuple[Type, ...]


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of a segment, by its number."""

    number: int


@dataclasses.dataclass(frozen=True)
class Param:
    """A float that may differ from run to run, as a learning rate, by its number."""

    number: int


@dataclasses.dataclass(frozen=True)
class Segment:
    """Ops between two collectives, on what one device has of their tensors.

    What runs it is given contiguous tensors for ``inputs``, then a scalar tensor of float64 for
    each parameter, and returns a list of tensors for ``outputs``, which may be views of inputs.

    Attributes:
        text: all of it but the user's lines, in the language of dumps; equal for equal segments.
        inputs: numbers of values, with their types.
        params: how many parameters there are, numbered from 0 on.
        ops: in an order in which each reads inputs and results of ops before it.
        outputs: numbers of values, with their types.
        over: by output, the place among ``inputs`` of the one that it replaces, which nobody reads
            later, so that it may be written over; -1: none. Empty unless
            :attr:`Compiler.in_place` asks for it.
    """

    text: str
    inputs: tuple[tuple[int, Type], ...]
    params: int
    ops: tuple[Op, ...]
    outputs: tuple[tuple[int, Type], ...]
    over: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Segment":
        """A segment of its text, as :func:`spmdx.explain` reports it."""
        return cls.of_row(text, _C.segment_row(text))

    @classmethod
    def of_row(cls, text: str, row: dict[str, Any]) -> "Segment":
        """A segment of what C++ or JSON has of it."""
        return cls(
            text,
            tuple((value, _type(row)) for value, row in row["inputs"]),
            row["params"],
            tuple(_op(op) for op in row["nodes"]),
            tuple((value, _type(row)) for value, row in row["outputs"]),
            tuple(row["over"]) if any(over >= 0 for over in row["over"]) else (),
        )

    def examples(self) -> list[torch.Tensor]:
        """What a run may be given."""
        scalars = [torch.ones((), dtype=torch.float64) for _ in range(self.params)]
        return [kind.example() for _, kind in self.inputs] + scalars


def _type(row: Sequence[Any]) -> Type:
    dtype, shape, is_number = row
    return Type(dtype, tuple(shape), is_number)


def _op(row: dict[str, Any]) -> Op:
    args = tuple(_arg(arg) for arg in row["args"])
    return Op(row["op"], args, row["first"], tuple(_type(kind) for kind in row["types"]))


def _arg(row: Any) -> Any:
    """Pairs of a kind and what it is; lists of numbers are lists, as JSON has pairs as well."""
    if not isinstance(row, list | tuple):
        return row
    if len(row) != 2 or not isinstance(row[0], str):
        return [_arg(item) for item in row]
    kind, what = row
    if kind == "value":
        return Value(what)
    if kind == "param":
        return Param(what)
    if kind == "dtype":
        return DTYPES[what]
    name, _, number = what.partition(":")
    if kind == "opaque" and name == "memory_format":
        return _FORMATS[int(number)]
    raise ValueError(f"a compiler cannot be told of an argument that is {what!r}")
