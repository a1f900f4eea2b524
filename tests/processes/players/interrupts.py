# SPDX-License-Identifier: Apache-2.0
"""Process 0 is interrupted, as by Ctrl-C, where it waits for process 1, or for its own steps.

    interrupts.py KIND [ends]

It prints the seconds that passed, and goes on: numbers are right, and nobody hangs. With ``ends``
the interrupt ends it instead, which process 1 prints.
"""

import os
import signal
import sys
import threading
import time

import spmdx
import torch

KIND, ENDS = sys.argv[1], "ends" in sys.argv
HERE = spmdx.runtime.process_index()
ALONE = spmdx.runtime.process_count() == 1
COUNT = spmdx.runtime.global_runtime_device_count()
SLOW = 4.0  # seconds


@torch.library.custom_op("interrupts::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    if ALONE and slow:
        time.sleep(SLOW)
    return x.clone()


pass_on.register_fake(torch.empty_like)
spmdx.register_rule("interrupts::pass_on", "*->*")
slow = False
total = sum(range(4 * COUNT))


def begin() -> torch.Tensor:
    mesh = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))
    x = spmdx.mark_sharding(torch.arange(4.0 * COUNT).to("spmdx"), mesh, ("data",))
    assert x.sum().item() == total
    return x


def begun(x):
    """A sum that is being computed, the same one when it is asked for again."""
    if not sums:
        sums.append(torch.ops.interrupts.pass_on(x * 2).sum())
        spmdx.mark_step()
    return sums[0]


def wait_item(x):
    assert begun(x).item() == 2 * total


def wait_cpu(x):
    assert begun(x).cpu() == 2 * total


def wait_sync(x):
    y = begun(x)
    spmdx.sync(wait=True)
    assert y.item() == 2 * total


def wait_shards(x):
    mesh = spmdx.get_1d_mesh("data")
    assert spmdx.mark_sharding(begun(x), mesh, ()).local_shards[0].data == 2 * total


def wait_mark_step(x):
    """Goes on where it was interrupted: in a mark_step, whose step has not begun."""
    if sums:
        spmdx.mark_step()
    while len(sums) < 4:
        sums.append(torch.ops.interrupts.pass_on(x * len(sums)).sum())
        spmdx.mark_step()
    assert [y.item() for y in sums] == [turn * total for turn in range(4)]


def wait_exchange(x):
    mesh = spmdx.get_1d_mesh("data")
    x = spmdx.ShardedTensor.from_local_shards([torch.ones(2)], mesh, ("data",))
    assert x.sum().item() == 2 * COUNT


def wait_rendezvous(x):
    begin()


def interrupt_soon() -> None:
    def strike():
        struck.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(1.0, strike).start()


struck: list[float] = []
sums: list[torch.Tensor] = []
act = globals()[f"wait_{KIND}"]
x = None if KIND == "rendezvous" else begin()
slow = True
if HERE and not ALONE:
    time.sleep(SLOW)
    try:
        act(x)
        x = begin() if x is None else x
    except spmdx.CommError as error:
        print(f"told: {error}", flush=True)
        assert ENDS
        sys.exit()
else:
    interrupt_soon()
    try:
        act(x)
    except KeyboardInterrupt:
        print(f"after {time.monotonic() - struck[0]:.2f} seconds", flush=True)
        if ENDS or KIND in ("exchange", "rendezvous"):
            raise
    else:
        raise AssertionError("it ended before it was interrupted")
    slow = False
    act(x)
assert x.sum().item() == total
print("well", flush=True)
