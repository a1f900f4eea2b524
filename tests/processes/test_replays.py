# SPDX-License-Identifier: Apache-2.0
"""Replays in several processes: each sends the same step, traced or not."""

import pytest
from launch import run


@pytest.mark.parametrize("processes, devices", [(2, 1), (3, 1), (2, 2)])
def test_replays_leave_what_traced_steps_leave_in_all_processes(processes, devices):
    for said in run("replays.py", processes, devices, SPMDX_TIMEOUT=60):
        assert said.endswith("well\n"), said
