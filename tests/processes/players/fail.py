# SPDX-License-Identifier: Apache-2.0
"""Process 1 gets into trouble of some kind while all of them train; the others say what they see.

    fail.py KIND

Every process prints "step N" when it begins one, then what it caught, if anything.
"""

import os
import signal
import sys
import time

import spmdx
import torch

KIND = sys.argv[1]
OTHER = spmdx.runtime.process_index() == 1
COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))
STEPS, WHEN = 6, 3


def trouble(kind: str) -> None:
    """What goes wrong in process 1 before its step."""
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "raises":
        raise ValueError("the loss of process 1 is its own")
    if kind == "exits":
        sys.exit(0)
    if kind == "quits":  # without any goodbye
        os._exit(3)
    if kind == "stalls":
        time.sleep(3600)
    if kind == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)


def train_step(table: torch.Tensor, index: torch.Tensor) -> float:
    index = spmdx.mark_sharding(index.to("spmdx"), MESH, ("data",))
    loss = torch.nn.functional.embedding(index, table).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        table -= 0.001 * table.grad
        table.grad = None
    return loss.item()


def main() -> None:
    torch.manual_seed(0)
    table = torch.nn.Parameter(torch.randn(10, 64).to("spmdx"))
    spmdx.mark_sharding(table, MESH, (None, None))
    done = 0
    while done < STEPS:
        print("step", done, flush=True)
        if done == WHEN and OTHER:
            trouble(KIND)
        index = torch.arange(512 * COUNT) % 10  # so many that it pays to cut the work
        if done == WHEN and KIND in ("index", "recovers"):
            index[600] = 99  # in the part of process 1
        try:
            loss = train_step(table, index)
        except (spmdx.CommError, IndexError) as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            if KIND != "recovers":
                raise
            spmdx.runtime.recover()
        else:
            print(f"loss {loss:.6f}", flush=True)
        done += 1
    print(f"end {table.detach().cpu().sum():.6f}", flush=True)


main()
