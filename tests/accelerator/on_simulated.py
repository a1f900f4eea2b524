# SPDX-License-Identifier: Apache-2.0
"""Runs a program of spmdx whose shards lie on the simulated CUDA device (simulated_place.py).

on_simulated.py PROGRAM [ARGUMENT …]
"""

import pathlib
import runpy
import sys

import simulated_place

simulated_place.install()
del sys.argv[0]
sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
