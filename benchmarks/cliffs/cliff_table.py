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
    "truncated BPTT over x[:, k:k+8]": "each device runs each of 473 small ops",
    "100 tiny parameters, fully sharded": "each device runs each small node",
    "buf[a:b] = buf[c:d], 16 MB": "on one device what is read is a view, so all is copied",
    "index_fill_, 16 MB": "no write in place of a part of a cut dim",
    "index_reduce_, 16 MB": "no write in place of a part of a cut dim",
    "scatter_reduce_, 16 MB": "no write in place of a part of a cut dim",
    "buf[i, j] += 1, 16 MB": "no write in place of a part of a cut dim",
    "diagonal().mul_, 16 MB": "an index of every element is made, and scattered by",
    "fill_diagonal_, 16 MB": "an index of every element is made, and scattered by",
    "decoding by cat, 300 tokens read": "256 plans are kept: each token is planned anew",
    "means of x[x > t], t changes": "each count is a plan",
    "boxes matched to anchors, training": "each count is a plan, of the gradient too",
    "mixup by roll(k), k is drawn, training": "each shift is a plan",
    "views written in turn": "100 writes are 540 nodes: one of a diagonal is eight",
    "y[k] = y[j] at 300 places": "all is copied, and the heap is in pieces that are too small",
}

ROOMS = (
    *(cliffs_writes, cliffs_numbers, cliffs_random, cliffs_nets, cliffs_attention),
    *(cliffs_training, cliffs_ops, cliffs_dynamic),
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
FIGURES = cliffs_figures.FIGURES
