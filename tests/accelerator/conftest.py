# SPDX-License-Identifier: Apache-2.0
"""Tests of this folder start programs as those of tests/processes do."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "processes" / "helpers")]
