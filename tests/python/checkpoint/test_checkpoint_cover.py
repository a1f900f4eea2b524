# SPDX-License-Identifier: Apache-2.0
"""Boxes make up a tensor if every element is in exactly one of them: compared with counting."""

import itertools
import time

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from spmdx._checkpoint.format.boxes import Box, whole
from spmdx._checkpoint.format.cover import fault_of


def counted(boxes, shape):
    """The same question, asked of every element."""
    counts = numpy.zeros(shape, int)
    for box in boxes:
        if any(a < 0 or n < 0 or a + n > s for a, n, s in zip(*box, shape, strict=True)):
            return False
        counts[tuple(slice(a, a + n) for a, n in zip(*box, strict=True))] += 1
    return bool((counts == 1).all())


@st.composite
def cut(draw, box):
    """The box, cut in two again and again, anywhere."""
    boxes = [box]
    for _ in range(draw(st.integers(0, 9))):
        offsets, sizes = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dim = draw(st.integers(0, len(sizes) - 1))
        at = draw(st.integers(0, sizes[dim]))
        lower = sizes[:dim] + (at,) + sizes[dim + 1 :]
        upper = sizes[:dim] + (sizes[dim] - at,) + sizes[dim + 1 :]
        boxes += [
            Box(offsets, lower),
            Box(offsets[:dim] + (offsets[dim] + at,) + offsets[dim + 1 :], upper),
        ]
    return draw(st.permutations(boxes))


@st.composite
def moved(draw, boxes):
    """Another place or size for one of them, or another number of them."""
    boxes = list(boxes)
    at = draw(st.integers(0, len(boxes) - 1))
    way = draw(st.sampled_from(["less", "more", "another", "other numbers"]))
    if way == "less":
        boxes.pop(at)
    elif way == "more":
        boxes.append(draw(st.sampled_from(boxes)))
    elif way == "another":
        boxes[at] = draw(st.sampled_from(boxes))  # as many as before, and sizes may still add up
    else:
        numbers = [list(boxes[at].offsets), list(boxes[at].sizes)]
        dim = draw(st.integers(0, len(numbers[0]) - 1))
        draw(st.sampled_from(numbers))[dim] += draw(st.sampled_from([-1, 1]))
        boxes[at] = Box(*map(tuple, numbers))
    return boxes


SIDES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@given(SIDES, st.data())
@examples(100)
def test_what_was_cut_makes_up_the_whole(shape, data):
    assert fault_of(data.draw(cut(whole(shape))), shape) == ""


@given(SIDES, st.data())
@examples(300)
def test_it_agrees_with_counting(shape, data):
    boxes = data.draw(cut(whole(shape)))
    for _ in range(data.draw(st.integers(1, 3))):
        boxes = data.draw(moved(boxes)) if boxes else boxes
    assert (fault_of(boxes, shape) == "") is counted(boxes, shape)


def test_the_fault_is_named():
    halves = [Box((0,), (4,)), Box((4,), (4,))]
    assert fault_of(halves, (8,)) == ""
    assert fault_of(halves[:1], (8,)) == fault_of([], (8,)) == "leave gaps"
    assert fault_of([halves[0]] * 2, (8,)) == "overlap"
    assert fault_of(halves, (7,)) == fault_of(halves, (8, 1)) == "do not lie in it"
    assert fault_of([Box((-1,), (9,))], (8,)) == "do not lie in it"
    assert fault_of([Box((), ())], ()) == "" and fault_of([Box((), ())] * 2, ()) == "overlap"
    assert fault_of([Box((0, 0), (0, 4))], (0, 4)) == fault_of([], (0, 4)) == ""


@pytest.mark.parametrize("axis", [0, 1])
def test_overlaps_are_found_among_many_boxes(axis):
    boxes = [Box((i, 2 * j), (1, 2)) for i in range(4) for j in range(8)]
    assert not fault_of(boxes, (4, 16)) and fault_of([*boxes, boxes[17]], (4, 16)) == "overlap"
    longer = Box((2, 6), (2, 2) if axis == 0 else (1, 3))
    overlapping = [longer if box.offsets == (2, 6) else box for box in boxes]
    assert fault_of(overlapping, (4, 16)) == "overlap"


def test_any_number_of_boxes_takes_little_time():
    sides = range(0, 4000, 20)
    grid = [Box(at, (20, 20)) for at in itertools.product(sides, sides)]
    strips = [Box((i, 0), (1, 2**60)) for i in range(40000)]
    began = time.monotonic()
    assert fault_of(grid, (4000, 4000)) == fault_of(strips, (40000, 2**60)) == ""
    assert fault_of([*grid[1:], grid[1]], (4000, 4000)) == "overlap"
    assert time.monotonic() - began < 10
