# SPDX-License-Identifier: Apache-2.0
"""Modules of StableHLO, written by hand, and a segment for a compiler that is given one."""

import torch
from spmdx._segments.segment import Segment, Type

NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "ui8",
    torch.bool: "i1",
}
SHAPES = [(), (1,), (3,), (4, 8), (0,), (2, 0, 3)]


def tensor_type(shape, dtype=torch.float32):
    return "tensor<" + "".join(f"{size}x" for size in shape) + NAMES[dtype] + ">"


def module(inputs, body, outputs):
    """Types of ``%arg0`` and so on, lines, and pairs of a value and its type."""
    args = ", ".join(f"%arg{i}: {kind}" for i, kind in enumerate(inputs))
    values = ", ".join(value for value, _ in outputs)
    types = ", ".join(kind for _, kind in outputs)
    return (
        f"module @segment {{ func.func public @main({args}) -> ({types}) {{\n"
        + "\n".join(body)
        + f"\nreturn {values} : {types} }} }}"
    )


def unary(op, kind):
    return module([kind], [f"%0 = {op} %arg0 : {kind}"], [("%0", kind)])


def aliasing(shape, dtype):
    """Gives its argument, that in another shape, one value twice, and that in another shape."""
    kind, other = tensor_type(shape, dtype), tensor_type((1, *shape), dtype)
    lines = [
        f"%0 = stablehlo.reshape %arg0 : ({kind}) -> {other}",
        f"%1 = stablehlo.multiply %arg0, %arg0 : {kind}",
        f"%2 = stablehlo.reshape %1 : ({kind}) -> {other}",
    ]
    return module(
        [kind], lines, [("%arg0", kind), ("%0", other), ("%1", kind), ("%1", kind), ("%2", other)]
    )


def matmul(size):
    kind = tensor_type((size, size))
    dot = f"stablehlo.dot_general %arg0, %arg0, contracting_dims=[1] x [0] : ({kind}, {kind})"
    return module([kind], [f"%0 = {dot} -> {kind}"], [("%0", kind)])


def some(shape, dtype):
    numbers = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    return (numbers % 2 == 0) if dtype == torch.bool else numbers.to(dtype)


def odd(shape, offset, dtype=torch.float32):
    """A tensor whose memory begins so many elements into a larger one's."""
    count = torch.Size(shape).numel()
    return torch.rand(count + offset).to(dtype)[offset:].view(shape)


def overlap(tensors):
    """Whether two of them share memory."""
    spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.nbytes)
    return any(mine[1] > other[0] for mine, other in zip(spans, spans[1:], strict=False))


def segment_of(outputs):
    """That has so many results; all else of it is nothing."""
    return Segment("", (), 0, (), tuple((i, Type("f32", ())) for i in range(outputs)))
