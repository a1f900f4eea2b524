# SPDX-License-Identifier: Apache-2.0
"""All rows of the table by name, and those known to exceed what was derived: how much, and why."""

import dataclasses

import rows_adapted
import rows_attention
import rows_data
import rows_idle
import rows_ops
import rows_recurrent
import rows_science
import rows_sharded
import rows_space
import rows_sparse
import rows_tensor
import rows_variants
from program_row import COMMON, Accepted

GATES = "every step exchanges gates, of a batch that is cut: weights are not laid out anew"
EXPERTS = "weights are exchanged to cut hidden units: parts of sums over experts cannot pass relu"

OPEN = {
    "decoding, short read of a cut sequence": Accepted(
        "rows are spread over devices before they are exchanged", 1.24
    ),
    "sorted experts, inference": Accepted(EXPERTS, 1.54),
    "sorted experts, training": Accepted(EXPERTS, 1.76),
    "convolutions, rows cut, training": Accepted(
        "rows of inputs are fetched again for the weights' gradients", 1.59
    ),
    "LSTM, gates cut, batch cut": Accepted(GATES, 1.22),
    "GRU, gates cut, batch cut": Accepted(GATES, 1.42),
    "argmax of a cut dim": Accepted("maxima are reduced before indices are scattered", 1.36),
}

ROOMS = (
    *(rows_data, rows_sharded, rows_tensor, rows_attention, rows_idle, rows_sparse, rows_space),
    *(rows_recurrent, rows_ops, rows_science, rows_adapted, rows_variants),
)
ROWS = {
    row.name: dataclasses.replace(row, accepted=OPEN.get(row.name, COMMON))
    for room in ROOMS
    for row in room.rows()
}
