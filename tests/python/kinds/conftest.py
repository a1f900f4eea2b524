# SPDX-License-Identifier: Apache-2.0
"""Tests of kinds have eight devices, and leave them all alike."""

import pytest
import spmdx


@pytest.fixture(autouse=True)
def alike_afterwards(tmp_path, monkeypatch):
    spmdx.runtime.set_device_count(8)
    spmdx.sync(wait=True)
    spmdx._C.clear_cache()  # plans of other tests, which a compiler would be given as well
    monkeypatch.setenv("SPMDX_CACHE", str(tmp_path / "cache"))
    yield
    spmdx.auto.place(None)
    spmdx.runtime.set_devices([])
    spmdx.set_topology("in-process")
