# SPDX-License-Identifier: Apache-2.0
"""Random programs with other sizes: the same lines over inputs of which one size has changed."""

import dataclasses
import random

from program_oracle import run

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 17, 24, 31, 32)
ATTEMPTS = 12


def with_size(program, old, new):
    """The program in which all dims of inputs that have one size have another."""
    inputs = [
        dataclasses.replace(i, shape=tuple(new if size == old else size for size in i.shape))
        for i in program.inputs
    ]
    return dataclasses.replace(program, inputs=tuple(inputs))


def runs(program):
    """Whether plain PyTorch takes it: what its lines say of sizes may not fit the new ones."""
    try:
        run(program, "cpu")
    except (RuntimeError, IndexError, ValueError, TypeError):
        return False
    return True


def resized(program, seed):
    """The same lines over inputs of another size; None where no size was found that fits them."""
    rng = random.Random(seed)
    sizes = sorted({size for i in program.inputs for size in i.shape if size > 1})
    for _ in range(ATTEMPTS if sizes else 0):
        old, new = rng.choice(sizes), rng.choice(SIZES)
        other = with_size(program, old, new)
        if new != old and runs(other):
            return other
    return None
