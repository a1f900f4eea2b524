# SPDX-License-Identifier: Apache-2.0
"""A training step over processes of which one is slowed: by measured speeds, beside equal parts.

    python benchmarks/unequal_processes.py [--competitors 1] [--microbatches 24] [--rounds 7]

Two processes have a core each. The last one shares its core with as many competitors, which do
nothing but run, for as long as they live. `spmdx.runtime.measure_devices` measures both; a loop
over microbatches is then shared out by what it found, and, in turn, as if both were alike. Told are
the speeds, the parts of the work that follow from them, how long each process was busy, and the
ratio of what a step takes, of one round each.
"""

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, ROWS, PROCESSES = 512, 12288, 2
STEPS = 3  # of a round; those before them are not timed
WARM = 3


def compete(core):
    os.sched_setaffinity(0, {core})
    while True:
        pass


@contextlib.contextmanager
def competitors(count, core):
    children = [multiprocessing.Process(target=compete, args=(core,)) for _ in range(count)]
    for child in children:
        child.start()
    try:
        yield
    finally:
        for child in children:
            child.terminate()
            child.join()


class Training:
    """A network, whose loss is that of many microbatches, on devices that are said to be such."""

    def __init__(self, devices, mesh, microbatches):
        import spmdx

        self._spmdx, self._devices, self._microbatches = spmdx, devices, microbatches
        self._mesh = mesh
        self.use()
        torch.manual_seed(0)
        layers = nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, 8)
        self._model = nn.Sequential(*layers).to("spmdx")
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        batch = torch.randn(ROWS, WIDTH), torch.randn(ROWS, 8)
        self._batch = [spmdx.mark_sharding(t.to("spmdx"), mesh, (None, None)) for t in batch]

    def use(self):
        self._spmdx.runtime.set_devices(self._devices)
        self._spmdx.auto.place(self._mesh, "kind")

    def step(self):
        """Seconds of a step: of the process that took longest."""
        dist.barrier()
        began = time.perf_counter()
        pairs = zip(*(t.chunk(self._microbatches) for t in self._batch), strict=True)
        loss = sum(nn.functional.mse_loss(self._model(x), y) for x, y in pairs)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.loss = loss.detach()
        self._spmdx.sync(wait=True)
        taken = torch.tensor(time.perf_counter() - began)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        return taken.item()

    def parts(self):
        """By process: of the work, and of all speed."""
        placement = self._spmdx.explain().placement
        busy = [0] * PROCESSES
        for segment in placement.segments:
            busy[segment.coordinate] += segment.end_ns - segment.start_ns
        done = [took / alone for took, alone in zip(busy, placement.alone_ns, strict=True)]
        speed = [1 / alone for alone in placement.alone_ns]
        return [d / sum(done) for d in done], [s / sum(speed) for s in speed]


def run_rank(options):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    os.sched_setaffinity(0, {options.cores[rank]})
    dist.init_process_group(
        "gloo", init_method=f"file://{options.store}", rank=rank, world_size=PROCESSES
    )
    import spmdx

    measured = spmdx.runtime.measure_devices()
    alike = [dataclasses.replace(measured[0], name=f"alike {i}") for i in range(PROCESSES)]
    mesh = spmdx.Mesh(range(PROCESSES), (PROCESSES,), ("kind",))
    programs = {
        "by speed": Training(measured, mesh, options.microbatches),
        "alike": Training(alike, mesh, options.microbatches),
    }
    seconds = {name: [] for name in programs}
    for _ in range(options.rounds):
        for name, program in programs.items():
            program.use()
            for _ in range(WARM):
                program.step()
            seconds[name].append(statistics.median(program.step() for _ in range(STEPS)))
            program.last_parts = program.parts()
    losses = {name: program.loss.item() for name, program in programs.items()}
    if rank == 0:
        told = {
            "f32": [d.flops_per_second["f32"] for d in measured],
            "seconds": seconds,
            "parts": {name: program.last_parts for name, program in programs.items()},
            "losses": losses,
        }
        print(json.dumps(told), flush=True)
    dist.destroy_process_group()


def show(told):
    first, last = told["f32"]
    print(
        f"measured: {first:.3g} and {last:.3g} operations of f32 a second, {first / last:.2f} to 1"
    )
    for name, parts in told["parts"].items():
        shares = zip(*parts, strict=True)
        said = ", ".join(
            f"{done:.1%} of the work, {speed:.1%} of the speed" for done, speed in shares
        )
        print(f"{name:9} {said}; {statistics.median(told['seconds'][name]) * 1e3:.0f} ms a step")
    pairs = zip(told["seconds"]["by speed"], told["seconds"]["alike"], strict=True)
    ratios = sorted(mine / other for mine, other in pairs)
    print(
        f"by speed / alike: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        f"; the last losses {told['losses']}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--competitors", type=int, default=1)
    parser.add_argument("--microbatches", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--cores", nargs="+", type=int, help="one for each process")
    options = parser.parse_args()
    if options.store:
        return run_rank(options)
    cores = options.cores or sorted(os.sched_getaffinity(0))[:PROCESSES]
    with competitors(options.competitors, cores[-1]), tempfile.TemporaryDirectory() as folder:
        more = ["--store", f"{folder}/store", "--cores", *map(str, cores)]
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], *more],
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(PROCESSES)},
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(PROCESSES)
        ]
        said, _ = ranks[0].communicate()
        if any(child.wait() for child in ranks):
            return 1
    show(json.loads(said.splitlines()[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
