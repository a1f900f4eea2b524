# SPDX-License-Identifier: Apache-2.0
"""Process 1 does not come through the making of a group of processes; the others say why, and end.

    making_groups.py HOW WHICH

HOW is ``killed``, ``raises``, or ``recovers`` for an error that is caught, and steps after
it; WHICH the number of the group, counted from 1.
"""

import os
import signal
import sys

import spmdx
import torch
from spmdx._world import gloo

HOW, WHICH = sys.argv[1], int(sys.argv[2])
MADE, MAKE = 0, gloo.group


def group(store, index: int, count: int):
    global MADE
    MADE += 1
    if os.environ["RANK"] == "1" and MADE == WHICH:
        if HOW == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("too many open files\nand more")
    return MAKE(store, index, count)


def step(x: torch.Tensor) -> float:
    return (x * 2).sum().item()


gloo.group = group
count = spmdx.runtime.global_runtime_device_count()
mesh = spmdx.Mesh(range(count), (count,), ("data",))
x = spmdx.mark_sharding(torch.arange(4.0 * count).to("spmdx"), mesh, ("data",))
wanted = 4.0 * count * (4 * count - 1)
if HOW != "recovers":
    print("lost", step(x), flush=True)
else:
    for _ in range(3):
        try:
            print("lost", step(x), flush=True)
        except spmdx.CommError as error:
            print(f"CommError: {error}", flush=True)
        spmdx.runtime.recover()
        assert step(x) == step(x) == wanted
        spmdx.runtime.recover()
        WHICH = MADE + 1
    print("well")
