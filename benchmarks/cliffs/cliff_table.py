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

# A cause that several rows share.
CHAIN = "most of it is the search: a change is answered by nodes on both sides, and by theirs"

OPEN = {
    "out[t] = x, 1600 times": "two nodes a row are recorded and looked up, before any runs",
    "out[t] = x, 200 times, gradient": "the same, and each device runs each node",
    "buf[i].add_, 256 MB": "a row is read, added to and written by three nodes on each device",
    "truncated BPTT over x[:, k:k+8]": "each device runs each of 473 small ops",
    "100 tiny parameters, fully sharded": "each device runs each small node",
    "cat, stack and split of many": "each slice of a split is a node of its own",
    "planning: 2,000 rows of a cut value": "each row is a call of its own: its rule is made anew",
    "planning: 16,000 rows of a cut value": "the same, and so many rules are not kept",
    "planning: 500 uses, trained": CHAIN,
    "planning: LSTMCell, weights cut": CHAIN,
    "plans of 301 batch sizes": "256 plans are kept, of 0.35 MB each",
}

ROOMS = (
    *(cliffs_writes, cliffs_numbers, cliffs_random, cliffs_nets, cliffs_attention),
    *(cliffs_training, cliffs_ops),
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
FIGURES = cliffs_figures.FIGURES
