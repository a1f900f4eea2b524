# SPDX-License-Identifier: Apache-2.0
"""Core ops known to move more than their bound: in how many placements on two devices, and why."""

CHAIN = "the search changes one op at a time where ops beside it would have to follow"
STATE = "a bias is gathered for a result that nobody reads"
TARGETS = "the backward op takes scores that it does not read, and moves them to the targets' cut"

OPEN = {
    "addmm": (0, "on more than two devices, " + CHAIN),
    "rms_norm": (1, CHAIN),
    "layer_norm": (5, CHAIN + "; " + STATE),
    "group_norm": (2, STATE),
    "cross_entropy": (1, TARGETS),
    "nll_loss": (1, TARGETS),
    "attention": (0, "on more than two devices operands are gathered instead of exchanged twice"),
}
