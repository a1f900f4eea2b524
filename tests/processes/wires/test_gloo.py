# SPDX-License-Identifier: Apache-2.0
"""Threads of Gloo's that wait for what sockets have leave the core to one that sends."""

import os

import pytest
from launch import run

POLICIES = """
import os, pathlib, spmdx, torch, torch.distributed as dist

def event_threads():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return {int(t.name) for t in tasks if (t / "comm").read_text().strip() == "gloo_tcp_loop"}

dist.init_process_group("gloo")
of_the_program = event_threads()
mesh = spmdx.get_1d_mesh("data")
x = spmdx.mark_sharding(torch.ones(4, 2).to("spmdx"), mesh, ("data", None))
assert x.sum().item() == 8
own = event_threads() - of_the_program
policies = [{os.sched_getscheduler(thread) for thread in threads} for threads in
            (own, of_the_program)]
assert policies == [{os.SCHED_BATCH}, {os.SCHED_OTHER}], policies
assert os.sched_getscheduler(0) == os.SCHED_OTHER
print(len(own) > 0)
"""


REFUSED = """
import os, spmdx, torch, torch.distributed as dist

def refuse(*_):
    raise PermissionError("not here")

os.sched_setscheduler = refuse
dist.init_process_group("gloo")
mesh = spmdx.get_1d_mesh("data")
x = spmdx.mark_sharding(torch.ones(4, 2).to("spmdx"), mesh, ("data", None))
print(x.sum().item())
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads of Linux")
def test_event_threads_of_spmdx_do_not_preempt_and_others_are_left_as_they_are():
    assert [text.strip() for text in run(POLICIES, 2, 1)] == ["True", "True"]


def test_a_system_that_does_not_allow_it_is_as_good():
    assert [text.strip() for text in run(REFUSED, 2, 1)] == ["8.0", "8.0"]
