# SPDX-License-Identifier: Apache-2.0
"""Segments as ONNX models."""

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from onnx import ModelProto, ValueInfoProto, helper

from spmdx._segments.decompositions import taken
from spmdx._segments.primitive import primitive_segment
from spmdx._segments.segment import DTYPES, Op, Segment, Type, Value
from spmdx._targets.onnx_rows import (
    elementwise,
    indexing,
    products,
    reductions,
    shapes,
    special,
    windows,
)
from spmdx._targets.onnx_rows.writer import ELEMENTS, Table, Tensor, Writer, numel

HOLDS = "holds"  # the result that is false where PyTorch's kernels would raise
# The oldest operators that have all but BitCast, and the format of their files; those with BitCast.
OPSET, FORMAT = 20, 10
OPSET_OF_BITS, FORMAT_OF_BITS = 26, 13
# Ops that raise, or say where an error is, even if they have no elements.
_MAY_RAISE = ("aten.index", "aten.gather", "aten._unsafe_index", "aten.scatter")
# What PyTorch gives other zeros for; what ends in functions that ONNX does not have, or in what no
# decomposition says.
_LEFT_ALONE = (
    *("aten.copysign", "aten.lgamma", "aten.digamma", "aten.polygamma", "aten.igamma"),
    *("aten.erfinv", "aten.i0", "aten.nextafter", "aten.frexp", "aten.special_bessel"),
    *("aten.special_erfcx", "aten.special_i", "aten.special_log_ndtr", "aten.special_ndtri"),
    *("aten.special_spherical_bessel_j0", "aten.special_zeta", "aten.special_modified"),
    *("aten.bucketize", "aten.isin", "aten.take", "aten.adaptive_max_pool"),
    *("aten.diagonal_backward", "aten._upsample_bicubic2d_aa"),
    *("aten._upsample_bilinear2d_aa", "aten._upsample_lanczos2d_aa", "aten.linspace.Scalar_T"),
    *("aten.linspace.Tensor", "aten.bitwise_left_shift", "aten.bitwise_right_shift", "aten.gcd"),
    "aten.lcm",
)


def onnx_model(
    segment: Segment, check: Callable[[ModelProto], object], wrong: Collection[str] = ()
) -> ModelProto:
    """A model that takes ``value_0`` and so on, which are the segment's inputs and parameters.

    It gives ``result_0`` and so on, and ``holds`` where PyTorch's kernels might raise, which is
    false if they would. Inputs that nothing reads, and results without elements, are left out.

    Args:
        segment: that is written.
        check: raises for the model of a single op that is not taken.
        wrong: primitive ops of floats that whoever runs the model is wrong in.

    Raises:
        NotTaken: ops of the segment cannot be written; says which ones, and why.
    """

    def check_alone(alone: Segment) -> None:
        for op in alone.ops:
            if op.name in wrong and DTYPES[op.types[0].dtype].is_floating_point:
                raise ValueError(f"this provider computes other numbers than {op.name}")
        check(model_of_primitives(alone))

    return model_of_primitives(primitive_segment(segment, _rows(), check_alone))


def ops_taken(known: Sequence[str]) -> Iterable[str]:
    """Those of the known ops that are written, or are put together from such."""
    return taken(known, _rows(), _LEFT_ALONE)


@functools.cache
def _table() -> Table:
    table: Table = {}
    for family in (elementwise, special, shapes, reductions, products, windows, indexing):
        family.add(table)
    return table


@functools.cache
def _rows() -> frozenset[str]:
    return frozenset(_table())


def model_of_primitives(segment: Segment) -> ModelProto:
    """The model of a segment whose ops are rows.

    Raises:
        ValueError: one is not, or not in this use.
    """
    w, values = Writer(), {}
    for i, (number, kind) in enumerate(segment.inputs):
        values[number] = Tensor(f"value_{i}", kind.dtype, kind.shape)
        if numel(kind.shape) == 0:
            values[number] = w.constant(torch.empty(kind.shape, dtype=DTYPES[kind.dtype]))
    for op in segment.ops:
        for i, made in enumerate(_written(w, op, values)):
            if made is not None:
                values[op.first + i] = made
    inputs = [(f"value_{i}", kind) for i, (_, kind) in enumerate(segment.inputs)]
    outputs = [
        (f"result_{i}", kind, values[number])
        for i, (number, kind) in enumerate(segment.outputs)
        if numel(kind.shape)
    ]
    if w.facts or not outputs:  # a model has results
        facts = dict.fromkeys(w.facts or [w.number(True, "b8")])
        fact = functools.reduce(lambda a, b: w.op("And", a, b), facts)
        outputs.append((HOLDS, Type("b8", ()), fact))
    _name(w, [(name, value.name) for name, _, value in outputs])
    return _model(w, inputs, [(name, kind) for name, kind, _ in outputs])


def _name(w: Writer, outputs: Sequence[tuple[str, str]]) -> None:
    """Have nodes make results by their names; what no node makes, or is there already, is copied.

    Not all by ``Identity``: ONNX Runtime 1.32 loses the name of what it leaves out and fuses.
    """
    made = {name for node in w.nodes for name in node.output}
    names: dict[str, str] = {}
    for name, value in outputs:
        if value in made and value not in names:
            names[value] = name
    for node in w.nodes:
        node.input[:] = [names.get(each, each) for each in node.input]
        node.output[:] = [names.get(each, each) for each in node.output]
    for name, value in outputs:
        if names.get(value) != name:
            w.nodes.append(helper.make_node("Identity", [names.get(value, value)], [name]))


def _written(w: Writer, op: Op, values: dict[int, Tensor]) -> list[Tensor | None]:
    """Results of an op; those of no elements are constants."""

    def given(arg: Any) -> Any:
        if isinstance(arg, list):
            return [given(item) for item in arg]
        return values[arg.number] if isinstance(arg, Value) else arg

    row = _table().get(op.name)
    if row is None:
        raise ValueError(f"{op.name} is not written as ONNX")
    types = tuple(kind for kind in op.types)
    if not any(numel(kind.shape) for kind in types) and not op.name.startswith(_MAY_RAISE):
        return [w.filled(0, kind) for kind in types]
    made = row(w, types, *map(given, op.args))
    results = list(made) if isinstance(made, list | tuple) else [made]
    for result, kind in zip(results, types, strict=True):
        if result and (result.dtype, result.shape) != (kind.dtype, kind.shape):
            raise ValueError(f"{op.name} is written as {result}, and not {kind}")
    return results


def _model(
    w: Writer, inputs: Iterable[tuple[str, Type]], outputs: Iterable[tuple[str, Type]]
) -> ModelProto:
    """Without what no result needs."""
    outputs = list(outputs)
    needed, nodes = {name for name, _ in outputs}, []
    for node in reversed(w.nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    graph = helper.make_graph(
        nodes[::-1],
        "segment",
        [_info(name, kind) for name, kind in inputs if name in needed],
        [_info(name, kind) for name, kind in outputs],
        [proto for name, proto in w.initializers.items() if name in needed],
    )
    has_bits = any(node.op_type == "BitCast" for node in nodes)
    opset = helper.make_opsetid("", OPSET_OF_BITS if has_bits else OPSET)
    form = FORMAT_OF_BITS if has_bits else FORMAT
    return helper.make_model(graph, opset_imports=[opset], ir_version=form)


def _info(name: str, kind: Type) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, ELEMENTS[kind.dtype], list(kind.shape))
