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

# Causes that several rows share.
STEP = "a step of spmdx costs about 0.1 ms of its own"
BACKWARD = "autograd hands the backward of a device to a thread of its own"

OPEN = {
    "out[t] = x, 1600 times": "two nodes a row are recorded and looked up, before any runs",
    "LBFGS, strong Wolfe": "93 numbers are read, and each ends a step",
    "ring buffer[i % N] = x": STEP,
    "static KV cache[:, i] = k": STEP,
    "moving average of weights": STEP,
    "truncated BPTT over x[:, k:k+8]": "each device runs each of 473 small ops",
    "randperm": "as many keys are drawn and sorted, so that no mesh changes the order",
    "100 tiny parameters, fully sharded": "each device runs each small node",
    "cat, stack and split of many": "each slice of a split is a node of its own",
    "x[i, j], gradient": BACKWARD,
    "max, gradient": BACKWARD,
    "uploads that nobody reads": "uploads that were freed stay in the heap of the C library",
    "plans of 301 batch sizes": "256 plans are kept, of 0.35 MB each",
}

ROOMS = (
    *(cliffs_writes, cliffs_numbers, cliffs_random, cliffs_nets, cliffs_attention),
    *(cliffs_training, cliffs_ops),
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
FIGURES = cliffs_figures.FIGURES
