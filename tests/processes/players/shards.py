# SPDX-License-Identifier: Apache-2.0
"""Shards that the last process refuses, or that a process does not wait for: nobody takes any.

    shards.py KIND

Ends with "well", printed by every process, or fails.
"""

import _thread
import sys
import threading
import time
from functools import partial

import spmdx
import torch

HERE = spmdx.runtime.process_index()
LAST = spmdx.runtime.process_count() - 1
EACH = spmdx.runtime.addressable_runtime_device_count()
COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))
NEW = [torch.full((4,), 7.0)] * EACH
BEFORE = list(range(4 * COUNT))


def told(act) -> str:
    begun = time.monotonic()
    try:
        act()
    except (spmdx.ShardingError, spmdx.CommError, KeyboardInterrupt) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        assert time.monotonic() - begun < 10
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nobody was told")


def made(pieces: list, spec: tuple = ("data",)) -> torch.Tensor:
    return spmdx.ShardedTensor.from_local_shards(pieces, MESH, spec)


def refused(x: torch.Tensor) -> None:
    """What does not fit in one process is refused in all."""
    for bad in ([torch.ones(5)], [torch.ones(4).double()], [torch.ones(4).to_sparse()], [None], []):
        pieces = [*NEW[1:], *bad] if HERE == LAST else NEW
        for act in (partial(x.load_local_shards_, pieces), partial(made, pieces)):
            said = told(act)
            assert "shards.py:" in said and said.startswith(("ShardingError", "CommError")), said
            assert HERE == LAST or said.startswith("ShardingError") or f"process {LAST}" in said
            assert x.cpu().tolist() == BEFORE
    for spec in ("data",), (None,):  # of another length, and replicas that differ
        pieces = [torch.ones(3)] * EACH if HERE == LAST - 1 else NEW
        assert told(partial(made, pieces, spec)).startswith("ShardingError: shards.py:")


def interrupted(x: torch.Tensor) -> None:
    """Ctrl-C where processes wait for the last one to have looked at its own."""
    if HERE == LAST:
        time.sleep(2)
    else:
        threading.Timer(1.0, _thread.interrupt_main).start()
    said = told(partial(x.load_local_shards_, NEW))
    assert said.startswith("KeyboardInterrupt") or ("was broken off" in said and HERE == LAST)
    assert x.cpu().tolist() == BEFORE


def interrupted_late(x: torch.Tensor) -> None:
    """Ctrl-C where the others have taken theirs: this process takes its own before it raises."""
    decide = spmdx._world.processes.decide
    struck = []

    def decided(*arguments) -> str:
        word = decide(*arguments)
        if HERE == 0 and not struck:
            struck.append(True)
            raise KeyboardInterrupt
        return word

    spmdx._world.processes.decide = decided
    if HERE == 0:
        assert told(partial(x.load_local_shards_, NEW)).startswith("KeyboardInterrupt")
    else:
        x.load_local_shards_(NEW)
    assert x.cpu().tolist() == [7.0] * 4 * COUNT


x = spmdx.mark_sharding(torch.arange(4.0 * COUNT).to("spmdx"), MESH, ("data",))
spmdx.mark_step()
globals()[sys.argv[1]](x)
x.load_local_shards_(NEW)
assert x.cpu().tolist() == [7.0] * 4 * COUNT
x = made(NEW)
assert x.sum().item() == 28 * COUNT
spmdx.runtime.recover()
assert (x + 1).sum().item() == 32 * COUNT
print("well", flush=True)
