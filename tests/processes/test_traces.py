# SPDX-License-Identifier: Apache-2.0
"""Profiles of programs of several processes."""

import pytest
from launch import run


@pytest.mark.parametrize("devices", [1, 2])
def test_what_crosses_is_in_traces_and_profiles(devices):
    said = run("traces.py", 2, devices)
    assert len(set(said)) == 1 and said[0].strip().endswith(" waits")
