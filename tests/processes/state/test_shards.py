# SPDX-License-Identifier: Apache-2.0
"""Processes give a tensor its shards: all of them take theirs, or none does."""

import pytest
from launch import run


@pytest.mark.parametrize("kind", ["refused", "interrupted", "interrupted_late"])
@pytest.mark.parametrize("processes, devices", [(2, 1), (3, 1), (2, 2)])
def test_shards_are_taken_by_all_processes_or_by_none(kind, processes, devices):
    for said in run("shards.py", processes, devices, kind, SPMDX_TIMEOUT=60):
        assert said.endswith("well\n"), said
