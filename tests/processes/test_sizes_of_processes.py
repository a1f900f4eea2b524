# SPDX-License-Identifier: Apache-2.0
"""Sizes that change: all processes decide alike, whatever each has asked or finds in its files."""

import pytest
from launch import run


def searched(said):
    return int(said.split()[-1])


@pytest.mark.parametrize("processes, devices", [(2, 1), (3, 1), (4, 1), (2, 2)])
def test_batches_of_many_sizes_in_processes(processes, devices):
    for said in run("other_sizes.py", processes, devices, SPMDX_TIMEOUT=60):
        assert searched(said) < 20, said


@pytest.mark.parametrize("processes", [2, 3])
def test_one_process_finds_files_that_the_others_do_not_have(processes, tmp_path):
    first = run("other_sizes.py", processes, 1, str(tmp_path), SPMDX_TIMEOUT=60)
    second = run("other_sizes.py", processes, 1, str(tmp_path), SPMDX_TIMEOUT=60)
    assert [searched(said) for said in first[:-1]] == [searched(said) for said in second[:-1]]
    assert searched(second[-1]) < searched(first[-1])
