# SPDX-License-Identifier: Apache-2.0
"""Tests of compilers have eight devices, no plans of others, and a cache of their own."""

import pytest
import spmdx


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    spmdx.runtime.set_device_count(8)
    spmdx.sync(wait=True)
    spmdx._C.clear_cache()  # plans of other tests, which a compiler would be given as well
    monkeypatch.setenv("SPMDX_CACHE", str(tmp_path / "cache"))
    yield
    spmdx.set_compiler(None)
