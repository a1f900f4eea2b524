# SPDX-License-Identifier: Apache-2.0
"""What a save of a checkpoint and a load of it take.

    python benchmarks/checkpoint.py [--size 64] [--runs 9] [--devices 8] [--folder FOLDER]
    torchrun --nproc-per-node 2 benchmarks/checkpoint.py --devices 4

Prints one JSON line in process 0: medians of wall and CPU seconds. Two builds are compared by
--wait: a run begins with each line of the standard input, so that the runs of both can alternate.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import spmdx
import torch

COLUMNS = 1024


def made(size, tensors=16):
    """``size`` MiB of float32 in as many tensors, cut in three ways, and some small values."""
    devices = spmdx.runtime.global_runtime_device_count()
    mesh = spmdx.Mesh(range(devices), (devices // 2, 2), ("data", "model"))
    specs = (("data", None), (None, "model"), ("data", "model"))
    rows = size * (1 << 20) // (4 * COLUMNS * tensors)
    state = {}
    for i in range(tensors):
        tensor = torch.full((rows, COLUMNS), float(i)).to("spmdx")
        state[f"t{i}"] = spmdx.mark_sharding(tensor, mesh, specs[i % len(specs)])
    spmdx.sync(wait=True)
    return state | {f"n{i}": i for i in range(50)}


def timed(call, runs, wait):
    """Median seconds of the wall and of the CPU."""
    walls, processors = [], []
    for i in range(runs + 1):
        if wait:
            sys.stdin.readline()
        wall, processor = time.perf_counter(), time.process_time()
        call()
        if i:  # the first one warms up
            walls.append(time.perf_counter() - wall)
            processors.append(time.process_time() - processor)
        if wait:
            print(walls[-1:], processors[-1:], flush=True)
    return statistics.median(walls), statistics.median(processors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="MiB")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--devices", type=int, default=8, help="of each process")
    parser.add_argument("--folder", help="where, on a file system that all processes see")
    parser.add_argument("--wait", action="store_true", help="for a line before each run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    spmdx.runtime.set_device_count(options.devices)
    port = os.environ.get("MASTER_PORT", os.getpid())
    folder = Path(options.folder or tempfile.gettempdir()) / f"spmdx-checkpoint-{port}"
    state = made(options.size)
    result = {}
    for name in ("save", "load"):
        call = getattr(spmdx.checkpoint, name)
        wall, processor = timed(lambda: call(state, folder), options.runs, options.wait)  # noqa: B023
        result[name] = {"wall": round(wall, 4), "processor": round(processor, 4)}
    if spmdx.runtime.process_index() == 0:
        print(json.dumps(result))
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
