# SPDX-License-Identifier: Apache-2.0
"""The ops of random programs as Python text: each looks at the values and writes one more line.

An op takes a Draft (program_draft.py) and returns an expression, a list of statements in which
``$`` is the new name, or None where nothing fits. What it writes depends on shapes and on chance
only.
"""

from program_dtypes import casts, complex_numbers, constants, logic, masks, whole_numbers
from program_maths import (
    along_a_dim,
    attention,
    binary,
    einsum,
    loss,
    matmul,
    normalisation,
    reduction,
    spatial,
    unary,
)
from program_shapes import cut, indexing, join, movement, mutation, strided, written_flat

OPS = {
    unary: 3,
    binary: 4,
    matmul: 5,
    einsum: 1,
    movement: 5,
    reduction: 3,
    along_a_dim: 2,
    normalisation: 2,
    cut: 2,
    indexing: 3,
    loss: 3,
    join: 2,
    mutation: 2,
    attention: 1,
    spatial: 1,
    logic: 1,
    constants: 1,
    casts: 0.5,
    whole_numbers: 1.3,
    masks: 1.3,
    complex_numbers: 1,
    strided: 1.5,
    written_flat: 1,
}
OF_MORE_DTYPES = (casts, masks, complex_numbers)
