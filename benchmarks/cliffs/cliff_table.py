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
PARTS = "on a mesh the kernel works on a copy of the buffer: windows write few ops in place"
ROUNDS = "on a mesh each device looks for its rows by itself: some 15 microseconds a device"
DRAWN = "Philox is computed one number after the other, by a kernel of ours"
PLANNED = "the int is part of the graph: each of its values is planned"
FRESH = "lands in fresh memory, whose pages are zeroed, instead of the old"
READERS = "the search looks at all readers of a value for each of them (Assignment::each_way)"

OPEN = {
    **{f"scatter_, {size} MB": PARTS for size in (16, 256)},
    **{
        f"index_add_, {size} MB": "on a mesh a buffer of zeros is added to, then all of it"
        for size in (16, 256)
    },
    **{
        f"{name}, {size} MB": ROUNDS for name in ("index_copy_", "index_put_") for size in (16, 256)
    },
    "out[t] = x, 1600 times": "two nodes a row are recorded and looked up, before any runs",
    "out[t] = x, 200 times, gradient": "the same, and each device runs each node",
    "buf[i].add_, 256 MB": "a row is read, added to and written by three nodes on each device",
    "Adafactor": "160 numbers are read a step",
    "LBFGS, strong Wolfe": "93 numbers are read a step, each after a program of five ops",
    "ring buffer[i % N] = x": PLANNED,
    "static KV cache[:, i] = k": PLANNED,
    "truncated BPTT over x[:, k:k+8]": PLANNED,
    "plans of 100 offsets": PLANNED,
    **{name: DRAWN for name in ("randn", "randint", "normal_ in place")},
    "randperm": DRAWN + ", and sorted",
    "nn.init": DRAWN + "; trunc_normal_ reads whether all numbers are within",
    "100 tiny parameters, fully sharded": "each device runs each small node: 9 of 13 ms",
    "load_state_dict, 268 MB": "each load " + FRESH,
    "torch.save, 268 MB": "what is copied to the host, twice, " + FRESH,
    "state_dict there and back": "the copies there and back are real, and each " + FRESH,
    "cat, stack and split of many": "each slice of a split is a node of its own",
    "the first op of a process": "an op's meta kernel imports torch._dynamo and sympy",
    "planning: 2,000 rows of a cut value": READERS,
    "planning: 16,000 rows of a cut value": READERS,
    "planning: 500 uses of a cut weight": READERS,
    "planning: 500 uses, trained": READERS,
    "planning: LSTMCell, weights cut": READERS,
    "uploads that nobody reads": "they are held until 50,000 ops are recorded or a step ends",
    "an unmarked training loop": "each cut after 50,000 ops is another program, whose plan is kept",
    "plans of 301 batch sizes": "256 plans are kept, of 0.35 MB each",
}

ROOMS = (
    *(cliffs_writes, cliffs_numbers, cliffs_random, cliffs_nets, cliffs_attention),
    *(cliffs_training, cliffs_ops),
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
FIGURES = cliffs_figures.FIGURES
