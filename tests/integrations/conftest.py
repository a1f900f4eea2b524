# SPDX-License-Identifier: Apache-2.0
"""Tests of this folder import their cases, and what starts processes, by name."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
# pytest puts tests/ on the path, where the folder torch_xla would pass for a package to frames.
sys.path[:] = [path for path in sys.path if pathlib.Path(path).resolve() != HERE.parent]
sys.path[:0] = map(str, (HERE, HERE.parent / "processes" / "helpers"))
