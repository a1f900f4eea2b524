# SPDX-License-Identifier: Apache-2.0
"""The ways of a collective between processes beside c10d's own call, over Gloo.

    python benchmarks/collectives.py [--processes 2 4] [--megabytes 4 16 64 256] [--repeats 9]

Direct: messages between two processes each. Native: what SPMDX_COLLECTIVES=native takes. Auto: what
takes less time by what spmdx.calibrate has measured. Processes have one thread each; c10d and spmdx
take turns in them. A time is that of the slowest process, a
ratio the median of the paired ratios. Both make the operand first, by the same kernel: a copy, or
a sum of one row.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from turns import meet

KINDS = ("all_gather", "reduce_scatter", "all_reduce")
WAYS = ("direct", "native", "auto")
WARM = 2


def by_c10d(kind: str, row: torch.Tensor):
    """A function that makes the operand of this process's row, and calls the collective."""
    world = dist.get_world_size()
    whole, part = row.new_empty(row.numel() * world), row.new_empty(row.numel() // world)

    def gather() -> None:
        dist.all_gather_into_tensor(whole, row * 1)

    def scatter() -> None:
        dist.reduce_scatter_tensor(part, row[None].sum(0))

    def reduce() -> None:
        dist.all_reduce(row[None].sum(0))

    return {"all_gather": gather, "reduce_scatter": scatter, "all_reduce": reduce}[kind]


def by_spmdx(kind: str, row: torch.Tensor):
    import spmdx

    world = dist.get_world_size()
    mesh = spmdx.Mesh(range(world), (world,), ("x",))
    rows = spmdx.ShardedTensor.from_local_shards([row[None]], mesh, ("x", None))

    def run() -> None:
        made = rows * 1 if kind == "all_gather" else rows.sum(0)
        spec = {"all_gather": (None, None), "reduce_scatter": ("x",), "all_reduce": (None,)}[kind]
        made = spmdx.mark_sharding(made, mesh, spec)
        spmdx.sync(wait=True)

    return run


def seconds(run) -> float:
    dist.barrier()
    began = time.perf_counter()
    run()
    taken = torch.tensor(time.perf_counter() - began)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def run_rank(options) -> None:
    rank, world = meet(options.store), dist.get_world_size()
    if os.environ["SPMDX_COLLECTIVES"] == "auto":
        import spmdx

        spmdx.set_topology(spmdx.calibrate(devices=2))
    for megabytes in options.megabytes:
        elements = (megabytes << 20) // 4 // world * world
        for kind in KINDS:
            row = torch.ones(elements // world if kind == "all_gather" else elements)
            programs = [make(kind, row) for make in (by_c10d, by_spmdx)]
            times = [[seconds(run) for run in programs] for _ in range(WARM + options.repeats)]
            if rank == 0:
                print(json.dumps([megabytes, kind, times[WARM:]]), flush=True)
    dist.destroy_process_group()


def world_of(options, way: str, count: int) -> dict[tuple[int, str], float]:
    """The ratio of spmdx to c10d, by megabytes and kind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--store", os.path.join(folder, "store")]
        command += ["--repeats", str(options.repeats), "--megabytes", *map(str, options.megabytes)]
        children = []
        for rank in range(count):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_RANK": str(rank),
                "OMP_NUM_THREADS": "1",
                "SPMDX_COLLECTIVES": way,
            }
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            children.append(subprocess.Popen(command, env=environment, stdout=out, text=True))
        said = children[0].communicate()[0]
        if any(child.wait() for child in children):
            raise SystemExit("a process failed")
    rows = map(json.loads, said.splitlines())
    return {(mb, kind): statistics.median(s / c for c, s in times) for mb, kind, times in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.store:
        return run_rank(options)
    table = Table("processes", "MB of the whole", "collective", *(f"{w} / c10d" for w in WAYS))
    for count in options.processes:
        ratios = {way: world_of(options, way, count) for way in WAYS}
        for mb, kind in ratios[WAYS[0]]:
            row = [f"{ratios[way][mb, kind]:.2f}" for way in WAYS]
            table.add_row(str(count), str(mb), kind, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
