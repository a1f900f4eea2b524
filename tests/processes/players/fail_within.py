# SPDX-License-Identifier: Apache-2.0
"""Process 1 dies in the midst of a step, between two sums."""

import os
import pathlib
import signal
import time

import spmdx
import torch

INDEX = spmdx.runtime.process_index()
COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))
PIDS = spmdx._world.processes.exchange(os.getpid())
DYING = False


def gone(pid: int) -> bool:
    status = pathlib.Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


@torch.library.custom_op("fail::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    if DYING and INDEX == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while DYING and not gone(PIDS[1]):
        time.sleep(0.01)
    time.sleep(DYING)  # time for the kernel to close the connections
    return x.clone()


pass_on.register_fake(torch.empty_like)
spmdx.register_rule("fail::pass_on", "d->d")


def step(x: torch.Tensor) -> float:
    total = torch.ops.fail.pass_on(x.sum(0))
    return (x * total).sum().item()


def main() -> None:
    global DYING
    x = torch.arange(4096.0 * COUNT).reshape(-1, 64) / 4096
    x = spmdx.mark_sharding(x.to("spmdx"), MESH, ("data", None))
    print("loss", step(x), flush=True)
    assert spmdx.debug.counters()["collectives"] == 2
    DYING = True
    print("lost", step(x), flush=True)


main()
