# SPDX-License-Identifier: Apache-2.0
"""Processors that processes share, found and measured."""

import os
import statistics

import torch

from spmdx._annotate.mesh import Mesh
from spmdx._machine.exchanges import laid
from spmdx._machine.rates import by_ops, small_steps
from spmdx._machine.timing import own_least_seconds
from spmdx._world import processes


def shared_processors() -> int:
    """How many processors the devices of all processes share; 0: each has its own, and a spare one.

    A device has as many as its process has threads. A process of several devices runs these one
    after the other, which no plan is made for. Of several processes all have to call this.
    """
    count = processes.process_count()
    if count == 1 or processes.device_count() > count:
        return 0
    told = processes.exchange((_own_cores(), torch.get_num_threads()))
    here = [told[i] for i in processes.local_processes()]
    cores = len(set().union(*(cores for cores, _ in here)))
    of_a_device = statistics.median_low(processes.exchange(cores / sum(each for _, each in here)))
    return 0 if of_a_device > 1 else max(1, round(count * of_a_device))


def record_ns() -> int:
    """Nanoseconds that a process takes to record an op which another one runs."""
    mesh = Mesh([0], (1,), ("x",))
    steps = small_steps(lambda tensor: laid(tensor, mesh, (None,) * tensor.dim()))
    return by_ops(min(processes.exchange(own_least_seconds(steps))))


def _own_cores() -> list[int]:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
