# SPDX-License-Identifier: Apache-2.0
"""Eight devices, and plans for no machine and without a limit behind each test; a benchmark."""

import importlib.util
import sys
from pathlib import Path

import pytest
import spmdx

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def as_before():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    yield
    spmdx.set_hardware(None, topology="in-process")
    spmdx.set_memory_limit(None)


@pytest.fixture(scope="module")
def benchmark():
    """benchmarks/strategies.py as a module, and those of its folder."""
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("strategies", BENCHMARKS / "strategies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
