# SPDX-License-Identifier: Apache-2.0
"""Rows by index: reads and writes of places that tensors of integers say.

ONNX Runtime raises for places that are not there; those that count from the end are taken.
"""

import dataclasses
from typing import Any

import torch

from spmdx._targets.onnx_rows.elementwise import Types, operand
from spmdx._targets.onnx_rows.reductions import computed
from spmdx._targets.onnx_rows.writer import Table, Tensor, Writer, numel, refuse


@dataclasses.dataclass(frozen=True)
class _Indexing:
    """Which dims are indexed, by what, and how the result lies.

    Attributes:
        at: indices, all of one shape.
        first: dims of the tensor, those that are indexed first.
        back: where dims of the result are among places and other dims.
    """

    at: list[Tensor]
    first: list[int]
    back: list[int]


def _indexing(w: Writer, a: Tensor, given: list[Tensor | None]) -> _Indexing:
    given = [*given, *[None] * (len(a.shape) - len(given))]
    found = {d: index for d, index in enumerate(given) if index is not None}
    others = [d for d in range(len(a.shape)) if d not in found]
    if any(index.dtype in ("b8", "u8") for index in found.values()):
        refuse("how many places a mask has is known when it runs")
    places = torch.broadcast_shapes(*(index.shape for index in found.values()))
    at = [w.expand(w.cast(index, "i64"), places) for index in found.values()]
    dims = list(found)
    # Neighbours are replaced where they are; else the places come first.
    adjacent = bool(dims) and dims[-1] - dims[0] + 1 == len(dims)
    before, count = dims[0] if adjacent else 0, len(places)
    back = [
        *(count + d for d in range(before)),
        *range(count),
        *(count + d for d in range(before, len(others))),
    ]
    return _Indexing(at, dims + others, back)


def _together(w: Writer, at: list[Tensor]) -> Tensor:
    """Coordinates side by side, as a new last dim."""
    shape = [*at[0].shape, 1]
    return w.concat([w.reshape(each, shape) for each in at], len(shape) - 1)


def _index(w: Writer, types: Types, a: Tensor, indices: list[Tensor | None]) -> Tensor:
    of = _indexing(w, a, indices)
    shape = types[0].shape
    if not of.at:
        return a
    if len(of.at) == 1:
        axis = of.first[0]
        return w.many("Gather", [a, of.at[0]], [(a.dtype, shape)], axis=axis)[0]
    lain = w.transpose(a, of.first)
    made_of = [*of.at[0].shape, *lain.shape[len(of.at) :]]
    (made,) = w.many("GatherND", [lain, _together(w, of.at)], [(a.dtype, made_of)])
    return w.transpose(made, of.back)


def _index_put(
    w: Writer,
    types: Types,
    a: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    *_: Any,
) -> Tensor:
    of = _indexing(w, a, indices)
    if not of.at:
        refuse("no dim is indexed")
    dtype = a.dtype
    lain = w.transpose(computed(w, a) if accumulate else a, of.first)
    shape = [*of.at[0].shape, *lain.shape[len(of.at) :]]
    if numel(shape) == 0:
        return a
    seen = w.expand(w.cast(values, lain.dtype), [shape[d] for d in of.back])
    given = w.transpose(seen, [of.back.index(d) for d in range(len(of.back))])
    how = "add" if accumulate else "none"
    told = [lain, _together(w, of.at), given]
    (made,) = w.many("ScatterND", told, [(lain.dtype, lain.shape)], reduction=how)
    return w.transpose(w.cast(made, dtype), [of.first.index(d) for d in range(len(of.first))])


def _require_places(w: Writer, index: Tensor) -> Tensor:
    """No place counts from the end."""
    whole = w.cast(index, "i64")
    w.require(w.compare("GreaterOrEqual", whole, w.number(0, "i64")))
    return whole


def _of_a_dim(w: Writer, a: Tensor) -> Tensor:
    return a if a.shape else w.reshape(a, [1])


def _gathered(w: Writer, types: Types, a: Tensor, dim: int, index: Tensor, *_: Any) -> Tensor:
    a, at = _of_a_dim(w, a), _of_a_dim(w, _require_places(w, index))
    axis = dim % len(a.shape)
    (made,) = w.many("GatherElements", [a, at], [(a.dtype, at.shape)], axis=axis)
    return w.reshape(made, types[0].shape)


def _scattered(how: str) -> Any:
    def row(w: Writer, types: Types, a: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
        if not index.size:
            return a
        whole, at = _of_a_dim(w, a), _of_a_dim(w, _require_places(w, index))
        whole = computed(w, whole) if how == "add" else whole
        given = operand(w, source, whole.dtype)
        if given.shape:
            given = w.slice(given, [0] * len(at.shape), at.shape)
        told = [whole, at, w.expand(given, at.shape)]
        kind, axis = (whole.dtype, whole.shape), dim % len(whole.shape)
        (made,) = w.many("ScatterElements", told, [kind], axis=axis, reduction=how)
        return w.cast(w.reshape(made, a.shape), a.dtype)

    return row


def add(table: Table) -> None:
    """Rows of this file."""
    table["aten.index.Tensor"] = table["aten._unsafe_index.Tensor"] = _index
    table["aten.index_put"] = table["aten._unsafe_index_put"] = _index_put
    table["aten.gather"], table["aten.scatter_add"] = _gathered, _scattered("add")
    table["aten.scatter.src"] = table["aten.scatter.value"] = _scattered("none")
