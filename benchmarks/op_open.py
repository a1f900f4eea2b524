# SPDX-License-Identifier: Apache-2.0
"""Core ops known to move more than their bound: in how many placements on two devices, and why."""

SUM = "both operands of a cut sum stay where they are: no weight is gathered to spare a sum"
STATE = "parts of a gradient are summed whole although only a part is kept"
TARGETS = "the backward op takes scores that it does not read, and moves them to the targets' cut"
BOXES = "no op takes rows of a cut dim from other devices in parts of another size"

OPEN = {
    "mm": (1, SUM),
    "addmm": (1, SUM),
    "linear · 2": (13, SUM + "; the bias's gradient is summed where the weight's is"),
    "layer_norm": (4, STATE + "; a whole input is cut like the bias"),
    "group_norm": (2, STATE),
    "cross_entropy": (1, TARGETS),
    "nll_loss": (1, TARGETS),
    "cat": (2, "blocks of a whole operand move with those of a cut one"),
    "pad": (1, BOXES),
    "slice · 2": (1, BOXES),
    "conv2d": (
        15,
        "gradients exchange rows of a whole incoming gradient; a cut window is gathered",
    ),
}
