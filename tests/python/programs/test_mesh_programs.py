# SPDX-License-Identifier: Apache-2.0
"""A sample of random programs over several meshes; `make fuzz` runs more."""

import pytest
from mesh_programs import run_program


@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_values_stay_eagers_where_meshes_change(first):
    ended = sum(run_program(seed) for seed in range(first, first + 250))
    assert ended > 200
