# SPDX-License-Identifier: Apache-2.0
"""All rows of the table by name, and those known to be above their goal: why."""

import cliffs_attention
import cliffs_dynamic
import cliffs_figures
import cliffs_nets
import cliffs_numbers
import cliffs_ops
import cliffs_random
import cliffs_training
import cliffs_writes

OPEN = {
    "out[t] = x, 1600 times": "two nodes a row are recorded, and each device runs them",
    "out[t] = x, 200 times, gradient": "each device runs each of 1,801 small ops",
    "truncated BPTT over x[:, k:k+8]": "each device runs each of 473 small ops",
    "100 tiny parameters, fully sharded": "each device runs each small node",
    "decoding by cat, 300 tokens read": "each read is a step of 15 small ops",
    "means of x[x > t], t changes": "each count is a plan, and each read a step",
    "beam search, lists read": "each read is a step of 28 small ops",
    "breadth first search by where": "each read is a step of 8 small ops",
    "views written in turn": "100 writes are 440 nodes",
    "the first op of a process": "import spmdx takes that long: 0.1 s of it are the collector's",
}

ROOMS = (
    *(cliffs_writes, cliffs_numbers, cliffs_random, cliffs_nets, cliffs_attention),
    *(cliffs_training, cliffs_ops, cliffs_dynamic),
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
FIGURES = cliffs_figures.FIGURES
