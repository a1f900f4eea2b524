# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, and convolutions with their transposes and gradients.

Source: V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, 2016.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from spmdx._targets.onnx_rows.elementwise import Types
from spmdx._targets.onnx_rows.reductions import computed, summed
from spmdx._targets.onnx_rows.writer import Table, Tensor, Writer, refuse


@dataclasses.dataclass(frozen=True)
class _Settings:
    """As aten.convolution has them."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    groups: int


def _product(w: Writer, types: Types, a: Tensor, b: Tensor, *_: Any) -> Tensor:
    if not a.size or not b.size:
        return w.filled(0, types[0])
    return w.one("MatMul", [a, b], types[0].shape)


def _settings(
    rank: int, stride: Any, padding: Any, dilation: Any, transposed: bool, groups: int
) -> _Settings:
    def whole(given: list[int], missing: int) -> list[int]:
        given = given or [missing]
        return given * (rank - 2) if len(given) == 1 else list(given)

    return _Settings(
        whole(stride, 1), whole(padding, 0), whole(dilation, 1), bool(transposed), groups
    )


def _direct(
    w: Writer, a: Tensor, weight: Tensor, shape: Sequence[int], of: _Settings, *bias: Tensor
) -> Tensor:
    return w.one(
        "Conv",
        [a, weight, *bias],
        shape,
        strides=of.stride,
        pads=of.padding * 2,
        dilations=of.dilation,
        group=of.groups,
    )


def _transposed(
    w: Writer, a: Tensor, weight: Tensor, shape: Sequence[int], of: _Settings, *bias: Tensor
) -> Tensor:
    """What a transposed convolution with this weight gives: of all, a part of this shape."""
    after, more = [], []
    for d, size in enumerate(shape[2:]):
        reach = of.dilation[d] * (weight.shape[d + 2] - 1) + 1
        whole = (a.shape[d + 2] - 1) * of.stride[d] + reach
        left = whole - of.padding[d] - size
        after.append(max(0, left))
        more.append(max(0, -left))
    fits = all(n < s for n, s in zip(more, of.stride, strict=True))
    made_of = [n - (0 if fits else beyond) for n, beyond in zip(shape[2:], more, strict=True)]
    made = w.one(
        "ConvTranspose",
        [a, weight, *(bias if fits else ())],
        [*shape[:2], *made_of],
        strides=of.stride,
        pads=[*of.padding, *after],
        dilations=of.dilation,
        group=of.groups,
        output_padding=more if fits else [0] * len(more),
    )
    if fits:
        return made
    made = w.pad(made, [0] * len(shape), [0, 0, *more])
    return w.op("Add", made, _of_channels(w, bias[0], len(shape))) if bias else made


def _of_channels(w: Writer, bias: Tensor, rank: int) -> Tensor:
    return w.reshape(bias, [bias.size, *[1] * (rank - 2)])


def _of_weight(w: Writer, a: Tensor, grad: Tensor, shape: Sequence[int], of: _Settings) -> Tensor:
    """The gradient of a direct convolution's weight: its input with what it gave as kernel."""
    rank, groups = len(shape), of.groups
    batch, channels, space = a.shape[0], a.shape[1] // groups, a.shape[2:]
    apart = w.reshape(a, [batch, groups, channels, *space])
    lain = w.transpose(apart, [2, 1, 0, *range(3, rank + 1)])
    lain = w.reshape(lain, [channels, groups * batch, *space])
    kernel = w.transpose(grad, [1, 0, *range(2, rank)])
    made_of = [
        (space[d] + 2 * of.padding[d] - of.stride[d] * (grad.shape[d + 2] - 1) - 1)
        // of.dilation[d]
        + 1
        for d in range(rank - 2)
    ]
    other = _Settings(of.dilation, of.padding, of.stride, False, groups)
    made = _direct(w, lain, kernel, [channels, grad.shape[1], *made_of], other)
    ends = [channels, grad.shape[1], *shape[2:]]
    made = w.slice(made, [0] * rank, ends)
    if tuple(made.shape[2:]) != tuple(shape[2:]):
        refuse("no input lies under part of the weight")
    return w.transpose(made, [1, 0, *range(2, rank)])


def _require_elements(*tensors: Tensor | None) -> None:
    if any(each and not each.size for each in tensors):
        refuse("a convolution of no elements")


def _convolution(
    w: Writer,
    types: Types,
    a: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    _require_elements(a, weight)
    of = _settings(len(a.shape), stride, padding, dilation, transposed, groups)
    wide = [computed(w, each) for each in (a, weight, bias) if each]
    write = _transposed if of.transposed else _direct
    made = write(w, wide[0], wide[1], types[0].shape, of, *wide[2:])
    return w.cast(made, types[0].dtype)


def _backward(
    w: Writer,
    types: Types,
    grad: Tensor,
    a: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool] = (True, True, True),
) -> list[Tensor | None]:
    _require_elements(grad, a, weight)
    of = _settings(len(a.shape), stride, padding, dilation, transposed, groups)
    dtype = a.dtype
    grad, a, weight = (computed(w, each) for each in (grad, a, weight))
    found: list[Tensor | None] = [None, None, None]
    if mask[0]:
        write = _direct if of.transposed else _transposed
        found[0] = write(w, grad, weight, a.shape, of)
    if mask[1]:
        whole, kernel = (grad, a) if of.transposed else (a, grad)
        found[1] = _of_weight(w, whole, kernel, weight.shape, of)
    if mask[2]:
        found[2] = summed(w, grad, [0, *range(2, len(grad.shape))])
    return [each and w.cast(each, dtype) for each in found]


def add(table: Table) -> None:
    """Rows of this file."""
    for name in ("aten.mm", "aten.bmm", "aten.mv", "aten.dot"):
        table[name] = _product
    table["aten.convolution"], table["aten.convolution_backward"] = _convolution, _backward
