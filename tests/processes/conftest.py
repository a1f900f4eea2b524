# SPDX-License-Identifier: Apache-2.0
"""Tests of this folder import each other's files by name."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
