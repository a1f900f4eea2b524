# SPDX-License-Identifier: Apache-2.0
"""Offsets that move: all processes agree on the plan, whatever offset it was made for."""

import pytest
from launch import run


@pytest.mark.parametrize("processes, devices", [(2, 1), (3, 1), (2, 2)])
def test_moving_offsets_have_the_numbers_of_the_cpu_in_all_processes(processes, devices):
    for said in run("offsets.py", processes, devices, SPMDX_TIMEOUT=60):
        assert said.endswith("well\n"), said
