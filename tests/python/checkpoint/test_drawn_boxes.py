# SPDX-License-Identifier: Apache-2.0
"""Boxes of shardings: what they meet in, and that those of all devices make up the tensor."""

import numpy
import spmdx
import torch
from drawn import boxes_of, cuts, meshes, shapes, spec_of
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from spmdx._checkpoint.format.boxes import Box, boxes_to_fill, holders_of, pieces_of, whole
from spmdx._checkpoint.format.cover import fault_of


@st.composite
def boxes(draw, shape):
    """A part of a tensor of this shape, perhaps empty."""
    starts = [draw(st.integers(0, size)) for size in shape]
    sizes = [draw(st.integers(0, size - at)) for at, size in zip(starts, shape, strict=True)]
    return Box(tuple(starts), tuple(sizes))


def elements(box, shape):
    """The numbers of its elements in a tensor of this shape."""
    return set(numpy.arange(numpy.prod(shape)).reshape(shape)[box.inside(whole(shape))].flat)


@given(shapes(), st.data())
@examples(200)
def test_two_boxes_meet_in_what_both_contain(shape, data):
    a, b = data.draw(boxes(shape)), data.draw(boxes(shape))
    both = a.meet(b)
    assert elements(both, shape) == elements(a, shape) & elements(b, shape)
    assert both.numel == b.meet(a).numel == len(elements(both, shape))
    if both.numel:
        x = torch.arange(whole(shape).numel).view(shape)
        held = x[a.inside(whole(shape))]
        assert set(held[both.inside(a)].flatten().tolist()) == elements(both, shape)


@given(meshes(), shapes(), st.data())
@examples(100)
def test_a_sharded_tensor_is_the_sum_of_its_boxes(mesh, shape, data):
    entries = data.draw(cuts(mesh, len(shape)))
    x = torch.arange(float(whole(shape).numel)).view(shape)
    placed = spmdx.mark_sharding(x.to("spmdx"), mesh, spec_of(entries))
    want = {
        Box(tuple(s.start for s in box), tuple(s.stop - s.start for s in box))
        for box in boxes_of(mesh, entries, shape)
    }
    pieces = pieces_of(placed)
    assert fault_of([piece.box for piece in pieces], shape) == ""
    for box, held in pieces:
        assert torch.equal(held.cpu(), x[box.inside(whole(shape))])
    if x.numel():
        want = {box for box in want if box.numel}
        assert {piece.box for piece in pieces} == want == set(boxes_to_fill(placed))
        assert set(holders_of(placed)) == want
