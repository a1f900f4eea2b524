# SPDX-License-Identifier: Apache-2.0
"""Core ops known to move more than their bound: in how many placements on two devices, and why."""

SUM = "both operands of a cut sum stay where they are: no weight is gathered to spare a sum"
CHAIN = "the search changes one op at a time where ops beside it would have to follow"
STATE = "parts of a gradient are summed whole although only a part is kept"
TARGETS = "the backward op takes scores that it does not read, and moves them to the targets' cut"
BOXES = "no op takes rows of a cut dim from other devices in parts of another size"
TABLE = "a table is not exchanged to read it, only rows are summed"
ROWS = "rows of a whole incoming gradient are exchanged; a cut window is gathered"

OPEN = {
    "mm": (1, SUM),
    "addmm": (1, SUM),
    "linear · 2": (20, CHAIN + "; " + SUM),
    "einsum · 2": (5, CHAIN),
    "outer": (2, CHAIN),
    "rms_norm": (1, CHAIN),
    "layer_norm": (5, CHAIN + "; " + STATE),
    "group_norm": (2, STATE),
    "cross_entropy": (1, TARGETS),
    "nll_loss": (1, TARGETS),
    "gather": (1, TABLE),
    "index_select": (1, TABLE),
    "cat": (2, "blocks of a whole operand move with those of a cut one"),
    "chunk · 2": (1, "the pieces of a cut dim are read one by one: each alone pays a gather"),
    "pad": (1, BOXES),
    "slice · 2": (1, BOXES),
    "sort": (0, "on more than two devices the 8-byte indices go back, the gradient is less"),
    "attention": (1, "where features are cut, operands are gathered instead of exchanged"),
    "conv2d": (5, ROWS),
}
