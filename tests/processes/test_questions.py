# SPDX-License-Identifier: Apache-2.0
"""Threads of the program ask how it goes while others of ours free what was sent."""

import pytest
from launch import Running

# What a Python op returns is a Python object too: the thread that frees it needs the GIL.
PROGRAM = """
import threading

import spmdx
import torch
from spmdx import _C

@torch.library.custom_op("threads::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

pass_on.register_fake(torch.empty_like)
spmdx.register_rule("threads::pass_on", "*->*")
mesh = spmdx.get_1d_mesh("data")
x = spmdx.mark_sharding(torch.ones(8, 6).to("spmdx"), mesh, ("data", None))
ended = False

def ask():
    while not ended:
        _C.generation(), _C.idle(), _C.broken(), _C.counters(), _C.gather_budget(), _C.report_last()

asking = threading.Thread(target=ask)
asking.start()
for step in range(60):
    whole = spmdx.mark_sharding(pass_on(x + step), mesh, (None, None))
    assert whole.sum().item() == 48 * (step + 1)
ended = True
asking.join()
print("ended")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_questions_and_steps_do_not_wait_for_each_other(processes):
    with Running(PROGRAM, processes) as running:
        ended = running.end(60)
    assert [how.status for how in ended] == [0] * processes, [how.err for how in ended]
