# SPDX-License-Identifier: Apache-2.0
"""Whether boxes make up a tensor: every element in exactly one of them, and nothing else."""

import functools
import math
import secrets
from collections.abc import Callable, Sequence

from spmdx._checkpoint.format.boxes import Box, whole

_PRIME = 2**127 - 1


def fault_of(boxes: Sequence[Box], shape: tuple[int, ...]) -> str:
    """What is wrong with ``boxes`` as the parts of a tensor of ``shape``; empty if nothing is.

    The element at (i, j, …) stands for the monomial x^i y^j …, and a box for the sum of those of
    its elements. Boxes make up the tensor exactly if their sum is the tensor's polynomial. Both are
    evaluated at a random point: others agree there with a chance of less than 2**-50. Sums of sizes
    would not notice one element twice and another missing; pairs of boxes are too many.
    """
    if any(not _lies_in(box, shape) for box in boxes):
        return "do not lie in it"
    if len(boxes) == 1 and boxes[0] == whole(shape):
        return ""
    powers = [_powers() for _ in shape]

    def measure(box: Box) -> int:
        """The polynomial of a box, times the product of (x - 1), which all boxes have in common."""
        result = 1
        for power, start, size in zip(powers, *box, strict=True):
            result = result * (power(start + size) - power(start)) % _PRIME
        return result

    if (sum(map(measure, boxes)) - measure(whole(shape))) % _PRIME == 0:
        return ""
    return "leave gaps" if sum(box.numel for box in boxes) < math.prod(shape) else "overlap"


def _powers() -> Callable[[int], int]:
    x = 2 + secrets.randbelow(_PRIME - 2)
    return functools.cache(lambda exponent: pow(x, exponent, _PRIME))


def _lies_in(box: Box, shape: tuple[int, ...]) -> bool:
    return len(box.offsets) == len(box.sizes) == len(shape) and all(
        start >= 0 and size >= 0 and start + size <= length
        for start, size, length in zip(*box, shape, strict=True)
    )
