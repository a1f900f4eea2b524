# SPDX-License-Identifier: Apache-2.0
"""All rows of the table by name, and those known to be above their goal: why."""

import cliffs_attention
import cliffs_figures
import cliffs_nets
import cliffs_numbers
import cliffs_ops
import cliffs_random
import cliffs_training
import cliffs_writes

OPEN = {
    "out[t] = x, 1600 times": "two nodes a row are recorded, and each device runs them",
    "truncated BPTT over x[:, k:k+8]": "each device runs each of 473 small ops",
    "100 tiny parameters, fully sharded": "each device runs each small node",
}

ROOMS = (
    *(cliffs_writes, cliffs_numbers, cliffs_random, cliffs_nets, cliffs_attention),
    *(cliffs_training, cliffs_ops),
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
FIGURES = cliffs_figures.FIGURES
