# SPDX-License-Identifier: Apache-2.0
"""All rows of the table by name, and those known to be above their goal: why."""

import rows_attention
import rows_figures
import rows_nets
import rows_numbers
import rows_ops
import rows_random
import rows_training
import rows_writes

OPEN: dict[str, str] = {}

ROOMS = (
    *(rows_writes, rows_numbers, rows_random, rows_nets, rows_attention),
    *(rows_training, rows_ops),
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
FIGURES = rows_figures.FIGURES
