# SPDX-License-Identifier: Apache-2.0
"""Eight devices, and plans for no machine and without a limit behind each test."""

import pytest
import spmdx


@pytest.fixture(autouse=True)
def as_before():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    yield
    spmdx.set_hardware(None, topology="in-process")
    spmdx.set_memory_limit(None)
