# SPDX-License-Identifier: Apache-2.0
"""Step time of a GPT whose layers are shared out to processes, beside that of one process.

    python benchmarks/pipelines.py [--stages 2] [--microbatches 4 8] [--repeats 11]
                                   [--programs "spmdx 1f1b" "spmdx zb-h1" interleaved]

Starts a process of one thread for each stage. Every row times its programs in turn, in the same
processes, step by step, on the same batches, and checks that their losses agree; a step is as long
as its slowest process. "faster" is the median of the paired ratios to the step of one process in
plain PyTorch, "ideal" what the schedule gives if sending costs nothing and blocks are all there is,
"to 1F1B" the median of the paired ratios of times to torch.distributed.pipelining's Schedule1F1B.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent / "pipelines"))
from pipeline_programs import CONFIG, PROGRAMS, ROWS  # noqa: E402

WARM = 2  # steps that are not timed: shapes, connections, plans, allocations
BASE, PEER = "single", "1F1B"


def timed(step, x, y):
    """Seconds of the slowest process, and the mean loss of the step."""
    dist.barrier()
    began = time.perf_counter()
    losses = step(x, y)
    seconds = torch.tensor(time.perf_counter() - began)
    loss = torch.stack(losses).mean().cpu() if losses else torch.tensor(-1.0)
    for found in (seconds, loss):
        dist.all_reduce(found, dist.ReduceOp.MAX)
    return seconds.item(), loss.item()


def measure(names, microbatches, repeats):
    """Seconds of every step of every program, in turn."""
    programs = {name: PROGRAMS[name].make(microbatches) for name in names}
    times = {name: [] for name in names}
    for repeat in range(WARM + repeats):
        torch.manual_seed(repeat + 1)
        rows = (2, microbatches * ROWS, CONFIG.context)
        x, y = torch.randint(CONFIG.vocab, rows).unbind(0)
        losses = {}
        for name, step in programs.items():
            seconds, losses[name] = timed(step, x, y)
            if repeat >= WARM:
                times[name].append(seconds)
        spread = max(losses.values()) - min(losses.values())
        assert spread < 1e-3, f"losses of step {repeat} differ: {losses}"
    return times


def run_rank(options):
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where = f"file://{options.store}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    names = list(dict.fromkeys([BASE, PEER, *options.programs]))
    for microbatches in options.microbatches:
        times = measure(names, microbatches, options.repeats)
        if rank == 0:
            print(json.dumps([microbatches, times]), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # a thread of PyTorch's that is still there would abort the process at its end


def paired(times, a, b):
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))


def add_rows(table, stages, microbatches, times):
    for name, seconds in times.items():
        table.add_row(
            str(microbatches),
            name,
            f"{statistics.median(seconds) * 1e3:,.0f}",
            f"{paired(times, BASE, name):.2f}",
            f"{PROGRAMS[name].ideal(stages, microbatches):.2f}",
            f"{paired(times, name, PEER):.2f}",
        )
    table.add_section()


def start(options, folder):
    command = [sys.executable, __file__, *sys.argv[1:], "--store", f"{folder}/store"]
    shared = {"WORLD_SIZE": str(options.stages), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(options.stages)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--programs", nargs="*", choices=PROGRAMS, default=[])
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.store:
        return run_rank(options)
    table = Table("m", "program", "ms", "faster", "ideal", f"to {PEER}")
    with tempfile.TemporaryDirectory() as folder:
        ranks = start(options, folder)
        for line in ranks[0].stdout:
            add_rows(table, options.stages, *json.loads(line))
        if any(child.wait() for child in ranks):
            sys.exit(1)
    Console().print(table)


if __name__ == "__main__":
    main()
