# SPDX-License-Identifier: Apache-2.0
"""Segments as graphs of torch.fx, which compilers of PyTorch take."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from spmdx._segments.segment import DTYPES, Op, Param, Segment, Type, Value

# Tensors of a segment may lie otherwise than those of the program, so that a view may need a copy.
_COPY_IF_NEEDED = {"aten.view": "aten.reshape", "aten._unsafe_view": "aten.reshape"}
# Ops of a number that may change, as ops of a scalar tensor.
_OF_TENSORS = {
    "aten.add.Scalar": "aten.add.Tensor",
    "aten.sub.Scalar": "aten.sub.Tensor",
    "aten.mul.Scalar": "aten.mul.Tensor",
    "aten.div.Scalar": "aten.div.Tensor",
    "aten.lerp.Scalar": "aten.lerp.Tensor",
}
_PRODUCTS = {"aten.addcmul": torch.ops.aten.mul.Tensor, "aten.addcdiv": torch.ops.aten.div.Tensor}
_SUMS = ("aten.add.Scalar", "aten.sub.Scalar")
OPS_WITH_PARAMS = frozenset({*_OF_TENSORS, *_PRODUCTS})


def operator(name: str) -> Any:
    """``torch.ops.aten.mm.default`` for ``"aten.mm"``; None if there is none such."""
    namespace, packet, *overload = _COPY_IF_NEEDED.get(name, name).split(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(found, overload[0] if overload else "default", None)


def graph_module(
    segment: Segment, reads_rows: Callable[[str], bool] = lambda name: False
) -> GraphModule:
    """A module that takes what a run of the segment is given, and returns a tuple of its outputs.

    Those that lie over inputs are copied to these, and returned no more.

    Args:
        reads_rows: whether an op is a kernel that takes its tensors for contiguous ones.

    Raises:
        ValueError: an op has a parameter where there has to be a constant.
    """
    builder = _Builder(reads_rows)
    for number, kind in segment.inputs:
        builder.values[number] = builder.graph.placeholder(f"value_{number}")
        builder.types[number] = kind
    for number in range(segment.params):
        builder.params[number] = builder.graph.placeholder(f"param_{number}")
    for op in segment.ops:
        builder.add(op)
    builder.graph.output(tuple(builder.returned(segment)))
    return GraphModule(torch.nn.Module(), builder.graph)


class _Builder:
    def __init__(self, reads_rows: Callable[[str], bool]) -> None:
        self.reads_rows = reads_rows
        self.graph = Graph()
        self.values: dict[int, Node] = {}
        self.params: dict[int, Node] = {}
        self.types: dict[int, Type] = {}

    def returned(self, segment: Segment) -> Iterator[Node]:
        """What lies over no input; the others are written there, once nothing reads it."""
        if not segment.over:
            yield from (self.values[number] for number, _ in segment.outputs)
            return
        copy = torch.ops.aten.copy_.default
        made = [self._before_writes(self.values[number]) for number, _ in segment.outputs]
        for node, over in zip(made, segment.over, strict=True):
            if over < 0:
                yield node
            else:
                self.graph.call_function(copy, (self.values[segment.inputs[over][0]], node))

    def _before_writes(self, node: Node) -> Node:
        """The same, though what it may be a view of is written over."""
        origin: Any = node.args[0] if node.target is _item else node
        returns = origin.target._schema.returns
        if not any(value.alias_info for value in returns):
            return node
        return self.graph.call_function(torch.ops.aten.clone.default, (node,))

    def add(self, op: Op) -> None:
        op = _as_a_root(self._of_default_dtype(self._of_numbers(op)))
        has_param = any(isinstance(arg, Param) for arg in op.args)
        result = self._of_param(op) if has_param else self._call(op.name, op.args)
        if len(op.types) == 1 and not _gives_many(operator(op.name)):
            self.values[op.first] = result
            return
        for i in range(len(op.types)):
            self.values[op.first + i] = self.graph.call_function(_item, (result, i))

    def _of_numbers(self, op: Op) -> Op:
        """The op with what stands for numbers of Python in a dtype that promotes as they do."""
        self.types.update({op.first + i: kind for i, kind in enumerate(op.types)})
        kinds = [self.types[arg.number] for arg in op.args if isinstance(arg, Value)]
        if not any(kind.is_number for kind in kinds):
            return op
        common = _common_dtype(kinds, _dtype(op))
        return self._with_operands_in(op, common, lambda kind: kind.is_number)

    def _of_default_dtype(self, op: Op) -> Op:
        """A float that an op makes of integers is the default where it was recorded, not here."""
        result = _dtype(op)
        values = [arg.number for arg in op.args if isinstance(arg, Value)]
        of_floats = any(_is_float(DTYPES[self.types[number].dtype]) for number in values)
        is_made = _is_float(result) and result != torch.get_default_dtype() and values
        if of_floats or not is_made or torch.Tag.pointwise not in operator(op.name).tags:
            return op
        return self._with_operands_in(op, result, lambda kind: True)

    def _with_operands_in(self, op: Op, dtype: torch.dtype, which: Callable[[Type], bool]) -> Op:
        def converted(arg: Any) -> Any:
            is_one = isinstance(arg, Value) and which(self.types[arg.number])
            return self._converted(self.values[arg.number], dtype) if is_one else arg

        return dataclasses.replace(op, args=tuple(map(converted, op.args)))

    def _call(self, name: str, args: tuple[Any, ...]) -> Node:
        target = operator(name)
        if self.reads_rows(name):
            args = tuple(self._in_rows(arg) if isinstance(arg, Value) else arg for arg in args)
        given, named = [], {}
        for argument, arg in zip(target._schema.arguments, args, strict=False):
            if argument.kwarg_only and arg is None and argument.has_default_value():
                continue  # not all take a device or a layout that is none
            if argument.kwarg_only:
                named[argument.name] = self._node(arg)
            else:
                given.append(self._node(arg))
        return self.graph.call_function(target, tuple(given), named)

    def _in_rows(self, value: Value) -> Node:
        contiguous: dict[str, Any] = {"memory_format": torch.contiguous_format}
        node = self.values[value.number]
        return self.graph.call_function(torch.ops.aten.clone.default, (node,), contiguous)

    def _of_param(self, op: Op) -> Node:
        """An op with a number that may change, by ops that take a tensor for it.

        That tensor is rounded to the dtype of the others, which no number is: 16 bits are too few.
        """
        dtype = DTYPES[op.types[0].dtype]
        if dtype in (torch.bfloat16, torch.float16):
            op = dataclasses.replace(op, args=tuple(map(self._in_f32, op.args)))
        if op.name in _SUMS and len(op.args) > 2 and isinstance(op.args[2], Param):
            whole, other, factor = map(self._node, op.args)
            scaled = self.graph.call_function(torch.ops.aten.mul.Tensor, (factor, other))
            made = self._call(_OF_TENSORS[op.name], (whole, scaled))
        elif op.name in _OF_TENSORS:
            made = self._call(_OF_TENSORS[op.name], op.args)
        elif op.name in _PRODUCTS and isinstance(op.args[-1], Param):
            whole, left, right, number = map(self._node, op.args)
            product = self.graph.call_function(_PRODUCTS[op.name], (left, right))
            scaled = self.graph.call_function(torch.ops.aten.mul.Tensor, (product, number))
            made = self.graph.call_function(torch.ops.aten.add.Tensor, (whole, scaled))
        else:
            raise ValueError(f"{op.name} has a number that may change from step to step")
        return self._converted(made, dtype)

    def _in_f32(self, arg: Any) -> Any:
        return self._converted(self._node(arg), torch.float32) if isinstance(arg, Value) else arg

    def _converted(self, node: Node, dtype: torch.dtype) -> Node:
        return self.graph.call_function(torch.ops.prims.convert_element_type.default, (node, dtype))

    def _node(self, arg: Any) -> Any:
        if isinstance(arg, list):
            return [self._node(item) for item in arg]
        if isinstance(arg, Value):
            return self.values[arg.number]
        return self.params[arg.number] if isinstance(arg, Param) else arg


def _common_dtype(kinds: list[Type], result: torch.dtype) -> torch.dtype:
    """That operands are promoted to if some of them are numbers of Python."""
    if _is_float(result) and not any(_is_float(DTYPES[kind.dtype]) for kind in kinds):
        return result  # of integers that are divided, say
    of_tensors = [DTYPES[kind.dtype] for kind in kinds if not kind.is_number]
    dtype = functools.reduce(torch.promote_types, of_tensors, torch.bool)
    for kind in kinds:
        if not kind.is_number:
            continue
        of_number = DTYPES[kind.dtype]
        if _is_float(of_number) and not _is_float(dtype):
            dtype = result if _is_float(result) else torch.get_default_dtype()
        elif dtype == torch.bool:
            dtype = of_number
    return dtype


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _item(values: Any, index: int) -> Any:
    return values[index]


def _as_a_root(op: Op) -> Op:
    """A power of -0.5 as PyTorch's kernel of it has it: of -infinity there is none."""
    if op.name != "aten.pow.Tensor_Scalar" or op.args[1] != -0.5 or not _is_float(_dtype(op)):
        return op
    return dataclasses.replace(op, name="aten.rsqrt", args=op.args[:1])


def _dtype(op: Op) -> torch.dtype:
    return DTYPES.get(op.types[0].dtype, torch.bool)


def _gives_many(target: Any) -> bool:
    returns = target._schema.returns
    return len(returns) != 1 or "[]" in str(returns[0].type)
