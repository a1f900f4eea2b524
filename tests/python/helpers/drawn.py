# SPDX-License-Identifier: Apache-2.0
"""What hypothesis draws: meshes of 2 to 8 devices, cuts of a tensor over them, shapes."""

import math

import numpy
import spmdx
from hypothesis import strategies as st
from messages import eight_devices

eight_devices()

NAMES = ("i", "j")
SHAPES = ((2,), (3,), (4,), (8,), (2, 2), (2, 3), (4, 2))


@st.composite
def meshes(draw):
    """Of any devices, in any order."""
    shape = draw(st.sampled_from(SHAPES))
    devices = draw(st.permutations(range(8)))[: math.prod(shape)]
    return spmdx.Mesh(devices, shape, NAMES[: len(shape)])


def shapes(most_dims=3, longest=9):
    return st.lists(st.integers(0, longest), min_size=1, max_size=most_dims).map(tuple)


@st.composite
def cuts(draw, mesh, rank):
    """For each dim the axes that cut it, first is major; no axis twice."""
    entries = [[] for _ in range(rank)]
    for axis in draw(st.permutations(mesh.axis_names)):
        dim = draw(st.integers(-1, rank - 1))
        if dim >= 0:
            entries[dim].append(axis)
    return entries


def spec_of(entries):
    """As a partition spec is shown: None, a name, or a tuple of names."""
    return tuple(None if not e else e[0] if len(e) == 1 else tuple(e) for e in entries)


def boxes_of(mesh, entries, shape):
    """What each device holds, in plain Python: every axis cuts what those before it left into
    parts of ceil(rows / devices), the last ones smaller or empty."""
    sizes = dict(zip(mesh.axis_names, mesh.mesh_shape, strict=True))
    for place in numpy.ndindex(*mesh.mesh_shape):
        at = dict(zip(mesh.axis_names, place, strict=True))
        box = []
        for axes, length in zip(entries, shape, strict=True):
            start, stop = 0, length
            for axis in axes:
                part = -(-(stop - start) // sizes[axis])
                start, stop = (
                    min(start + at[axis] * part, stop),
                    min(start + (at[axis] + 1) * part, stop),
                )
            box.append(slice(start, stop))
        yield tuple(box)
