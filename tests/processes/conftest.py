# SPDX-License-Identifier: Apache-2.0
"""Tests of this folder import helpers, and some players, by name."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = map(str, (HERE, HERE / "helpers", HERE / "players", HERE / "players" / "faults"))
