# SPDX-License-Identifier: Apache-2.0
"""Values that processes tell each other: in order, and not kept for ever."""

import pytest
from launch import run

PROGRAM = """
import spmdx
from spmdx._world import processes

here, count = spmdx.runtime.process_index(), spmdx.runtime.process_count()
kept = []
for turn in range(30):
    assert processes.exchange([turn, here]) == [[turn, p] for p in range(count)]
    kept.append(processes._world.store.num_keys())
assert max(kept[2:]) <= max(kept[:2]) + 2 * count, kept  # the others may be a turn ahead
print("exchanged")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_exchanges_leave_no_keys(processes):
    assert run(PROGRAM, processes) == ["exchanged\n"] * processes


SHARDS = """
import spmdx, torch
from spmdx._world import processes

mesh = spmdx.get_1d_mesh("data")
x = spmdx.mark_sharding(torch.zeros(6).to("spmdx"), mesh, ("data",))
x.sum().item()
kept = []
for turn in range(30):
    x.load_local_shards_([torch.full((6 // mesh.size(),), float(turn))])
    kept.append(processes._world.store.num_keys())
assert max(kept[2:]) <= max(kept[:2]) + 2 * mesh.size(), kept
print(x.sum().item())
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_shards_that_are_taken_leave_no_keys(processes):
    assert run(SHARDS, processes) == ["174.0\n"] * processes
