# SPDX-License-Identifier: Apache-2.0
"""Step time of spmdx in two processes beside DDP, FSDP2 and DTensor tensor parallelism.

    python benchmarks/versus.py [--repeats 15] [--sizes 4L/128d] [--modes ddp]

Starts two processes of one thread each. Every row times the peer and spmdx in turn, in the same
processes, step by step, on the same model and batch; the ratio is the median of the paired ratios.
"single" is the same step in one process in plain PyTorch, with the whole batch. At the end are the
bytes that a process receives in a step, counted as in bytes.py.
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
from bytes import SIZES
from nanogpt import GPT, Config, token_mean, train_step
from peers import PEERS, Counter
from turns import meet

WARM = 4  # steps that are not timed: plans, buckets, allocations
PEER_OF = {
    "ddp": "DDP",
    "fsdp": "FSDP2",
    "fsdp, no reshard": "FSDP2, no reshard",
    "tp": "DTensor TP",
}


class Steps:
    """One program: a model, an optimizer, and a step on the next batch."""

    def __init__(self, model, config, rows, place=lambda x: x, end=lambda: None):
        self.model, self.config, self.rows, self.place, self.end = model, config, rows, place, end
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def __call__(self) -> float:
        """Seconds of one step."""
        x, y = torch.randint(self.config.vocab, (2, self.rows, self.config.context)).unbind(0)
        began = time.perf_counter()
        train_step(self.model, self.optimizer, self.place(x), self.place(y), token_mean)
        self.end()
        return time.perf_counter() - began


def ours(mode, config, batch):
    """The same step by spmdx: annotations instead of wrappers."""
    import spmdx

    world = dist.get_world_size()
    torch.manual_seed(0)
    model = GPT(config).to("spmdx")
    mesh = spmdx.Mesh(range(world), (world,), ("x",))
    if mode == "tp":
        for block in model.blocks:
            spmdx.mark_sharding(block.up.weight, mesh, ("x", None))
            spmdx.mark_sharding(block.down.weight, mesh, (None, "x"))
    if mode.startswith("fsdp"):
        spmdx.fully_shard(model, mesh, axis="x")
    spmdx.set_gather_budget(None if mode == "fsdp, no reshard" else 0)
    spec = (None, None) if mode == "tp" else ("x", None)

    def place(batch):
        return spmdx.mark_sharding(batch.to("spmdx"), mesh, spec)

    def end():
        spmdx.sync(wait=True)

    rows = batch if mode == "tp" else batch * world  # the global batch; a device keeps its part
    return Steps(model, config, rows, place, end)


def peer(mode, config, batch):
    torch.manual_seed(0)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    return Steps(PEERS[mode](GPT(config), mesh), config, batch)


def single(config, batch, mode):
    torch.manual_seed(0)
    return Steps(GPT(config), config, batch if mode == "tp" else batch * dist.get_world_size())


def measure(programs, mode, repeats) -> dict[str, list[float]]:
    """Seconds of every step of every program, in turn; a step is as long as its slowest process."""
    times = {name: [] for name in programs}
    for repeat in range(WARM + repeats):
        for name, step in programs.items():
            torch.manual_seed(repeat * 1000 + dist.get_rank() * (name == "peer" and mode != "tp"))
            dist.barrier()
            alone = name == "single"
            taken = torch.tensor(step() if not alone or dist.get_rank() == 0 else 0.0)
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            if repeat >= WARM:
                times[name].append(taken.item())
    return times


def received(programs) -> dict[str, int]:
    """Bytes that one process receives in a step of the peer and of spmdx."""
    import spmdx

    torch.manual_seed(0)
    with Counter() as counter:
        programs["peer"]()
    spmdx.debug.reset_counters()
    programs["spmdx"]()
    theirs = sum(size for _, size in counter.found.values())
    return {"peer": theirs, "spmdx": spmdx.debug.counters()["wire_bytes"]}


def run_rank(options) -> None:
    rank = meet(options.store)
    for label in options.sizes:
        sizes, batch = SIZES[label]
        for mode in options.modes:
            config = Config(**sizes)
            programs = {
                "peer": peer(mode, config, batch),
                "spmdx": ours(mode, config, batch),
                "single": single(config, batch, mode),
            }
            times = measure(programs, mode, options.repeats)
            sizes_of = received(programs)
            if rank == 0:
                print(json.dumps([label, mode, times, sizes_of]), flush=True)
    dist.destroy_process_group()


def show(line: str) -> None:
    label, mode, times, received = json.loads(line)
    median = {name: statistics.median(values) for name, values in times.items()}

    def ratio(a: str, b: str) -> float:
        return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))

    ratios = [("spmdx", "peer"), ("single", "spmdx"), ("single", "peer")]
    shown = "   ".join(f"{a} / {b} {ratio(a, b):5.2f}" for a, b in ratios)
    took = ", ".join(f"{name} {seconds * 1e3:.0f}" for name, seconds in median.items())
    sent = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in received.items())
    print(f"{label}  {PEER_OF[mode]:18} {shown}   ({took} ms; {sent} MB)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--modes", nargs="+", choices=PEER_OF, default=list(PEER_OF))
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.store:
        return run_rank(options)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *sys.argv[1:], "--store", f"{folder}/store"]
        ranks = [
            subprocess.Popen(
                command,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(2)
        ]
        for line in ranks[0].stdout:
            show(line)
        if any(child.wait() for child in ranks):
            sys.exit(1)


if __name__ == "__main__":
    main()
