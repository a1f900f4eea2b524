# SPDX-License-Identifier: Apache-2.0
"""Where the tensors of a sample may lie: every placement over one axis, draws of those over two."""

import itertools
import math
import random

Spec = tuple
Placement = tuple  # a spec, or None for "replicated", a tensor


def one_axis(ndim: int, axis: str) -> list[Spec | None]:
    """Replicated, and cut along each dim."""
    return [None] + [
        tuple(axis if dim == at else None for dim in range(ndim)) for at in range(ndim)
    ]


def two_axes(ndim: int) -> list[Spec | None]:
    """Both axes anywhere: on one dim each, on the same one, or nowhere."""
    specs = []
    for first, second in itertools.product([None, *range(ndim)], repeat=2):
        held = [[] for _ in range(ndim)]
        for axis, at in (("x", first), ("y", second)):
            if at is not None:
                held[at].append(axis)
        specs.append(tuple(tuple(axes) or None for axes in held) if any(held) else None)
    return specs


def placements(ndims: list[int], axes: int, most: int | None, seed: int) -> list[Placement]:
    """Placements of tensors with these numbers of dims, at least one of them cut.

    Args:
        ndims: the number of dims of each tensor.
        axes: 1 or 2, of the mesh.
        most: if there are more, every one of a single tensor and draws of the rest; None for all.
        seed: of the draw.
    """
    choices = [one_axis(n, "x") if axes == 1 else two_axes(n) for n in ndims]
    if most is None or math.prod(map(len, choices)) - 1 <= most:
        return [p for p in itertools.product(*choices) if any(p)]
    alone = [
        tuple(spec if at == other else None for other in range(len(ndims)))
        for at, specs in enumerate(choices)
        for spec in specs
        if spec
    ]
    draw = random.Random(seed)
    if len(alone) > most:
        alone = draw.sample(alone, most)
    found = dict.fromkeys(alone)
    while len(found) < most:
        drawn = tuple(draw.choice(specs) for specs in choices)
        if any(drawn):
            found[drawn] = None
    return list(found)
