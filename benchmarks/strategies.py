# SPDX-License-Identifier: Apache-2.0
"""Strategies that spmdx.auto.search lists: their steps as predicted, and as measured.

    python benchmarks/strategies.py [--processes 2 4 8] [--models gpt mlp] [--rounds 5]
                                    [--most 24] [--no-links] [--json figures.json]

Starts processes of one thread and one device each, which measure themselves and their links
(spmdx.calibrate), search, and run what the search lists: the chosen strategy, the best of each
family and stage of ZeRO, and others evenly spread over the list, up to ten times the chosen one.
Every round puts each of them into force in a fresh model and takes some steps; a step is as long
as that of the slowest process, and its median over the rounds counts. Losses of strategies with
equally many microbatches have to agree.

Correlations are Spearman's, of ranks. "listed" is the search's own table, "planned" the plan that
ran; "bytes" ranks by bytes over the wire alone. Regret is the time of the chosen one by the best
measured; "of other rounds" by the one that was best in the others, as the least of many times that
vary is no strategy's. Before that, collectives of all kinds, 1 KiB to 16 MiB, as the topology has
them and as a step waits for them.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import spmdx
import torch
import torch.distributed as dist
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent / "strategies"))
import strategy_links  # noqa: E402
from strategy_models import KINDS, Program  # noqa: E402
from strategy_report import Row, show_links, show_model, show_summary  # noqa: E402

LONGEST = 10
WARM, STEPS = 3, 2  # steps of a round: to plan and fill caches, and those that are timed as one


# --- one process ----------------------------------------------------------------------------------


def sample(candidates, most):
    """The chosen one, the best of each family and stage of ZeRO, and others evenly spread.

    Of the others those that are listed with at most ``LONGEST`` times the least.
    """
    best = {}
    for candidate in candidates:  # the chosen one is the first
        strategy = candidate.strategy
        best.setdefault((strategy.family, strategy.zero), candidate)
    kept = list(best.values())
    most_ns = LONGEST * candidates[0].step_ns
    rest = [c for c in candidates if c not in kept and c.step_ns <= most_ns]
    rest.sort(key=lambda c: c.step_ns)
    room = min(len(rest), max(0, most - len(kept)))
    places = sorted({round(i) for i in np.linspace(0, len(rest) - 1, room)}) if room else []
    return sorted(kept + [rest[place] for place in places], key=lambda c: c.step_ns)


def told(strategy):
    axes = " x ".join(f"{name} {size}" for name, size in strategy.axes.items())
    parts = [axes, f"{strategy.microbatches} mb"]
    parts += [f"ZeRO {strategy.zero}"] * bool(strategy.zero)
    return ", ".join([*parts, *[strategy.schedule] * bool(strategy.schedule)])


def in_force(name, strategy):
    """A function that takes a step of a fresh model, laid as the strategy says."""
    program, mesh = Program(name), strategy.mesh()
    strategy.mark(program.model, program.optimizer, mesh)
    parts = spmdx.auto.split(program.batch, strategy.microbatches)
    batches = [strategy.mark_batch(part, mesh) for part in parts]

    def step():
        loss = program.step(batches)
        spmdx.mark_step()
        return loss

    return step


def timed(step):
    """Milliseconds of a step in the slowest process, and the loss of the last one."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(STEPS):
        loss = step()
    spmdx.sync(wait=True)
    taken = torch.tensor((time.perf_counter() - began) / STEPS)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item() * 1e3, loss.item()


def measure_round(name, row, strategy):
    """Times a strategy once, in a fresh model; gives the loss after its steps."""
    step = in_force(name, strategy)
    for _ in range(WARM):
        step()
    spmdx.sync(wait=True)
    report = spmdx.explain()
    row.planned_ms, row.mb = report.step_ns / 1e6, report.wire_bytes / 1e6
    made = spmdx.debug.counters()["plans_compiled"]
    taken, loss = timed(step)
    assert spmdx.debug.counters()["plans_compiled"] == made, f"{row.strategy} was planned again"
    row.measured_ms.append(taken)
    return loss


def measure_model(name, rounds, most):
    """Rows of a model's strategies, and how long the search took."""
    program = Program(name)
    began = time.perf_counter()
    plan = spmdx.auto.search(program.step, program.model, program.optimizer, program.batch)
    seconds = time.perf_counter() - began
    chosen, rows = plan.candidates[0], []
    for candidate in sample(plan.candidates, most):
        strategy = candidate.strategy
        row = Row(told(strategy), strategy.family, candidate is chosen, candidate.planned)
        row.listed_ms = candidate.step_ns / 1e6
        rows.append((row, strategy))
    for _ in range(rounds):
        losses = {}
        for row, strategy in rows:  # batch norm sees a microbatch
            loss = measure_round(name, row, strategy)
            losses.setdefault(strategy.microbatches, []).append(loss)
        for alike in losses.values():
            assert max(alike) - min(alike) < 1e-3 * max(1, *alike), f"losses of {name}: {losses}"
    return [row for row, _ in rows], seconds


def run_rank(options):
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where = f"file://{options.store}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    spmdx.set_topology(spmdx.calibrate())

    def say(**told):
        if rank == 0:
            print(json.dumps({"processes": world, **told}), flush=True)

    links = strategy_links.measure_all(options.rounds) if options.links else []
    if links:
        level = dataclasses.asdict(spmdx.get_topology().levels[-1])
        say(level=level, links=[dataclasses.asdict(link) for link in links])
    for name in options.models:
        rows, seconds = measure_model(name, options.rounds, options.most)
        say(model=name, search_s=seconds, rows=[dataclasses.asdict(row) for row in rows])
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # a thread of PyTorch's that is still there would abort the process at its end


# --- all of them ---------------------------------------------------------------------------------


def start(options, processes, folder):
    arguments = ["--rounds", options.rounds, "--most", options.most, "--models", *options.models]
    arguments += ["--store", f"{folder}/store", "--links" if options.links else "--no-links"]
    command = [sys.executable, __file__, *map(str, arguments)]
    shared = {"WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1", "SPMDX_NUM_DEVICES": "1"}
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(processes)
    ]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--models", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--links", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--most", type=int, default=24, help="strategies of a search that run")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--store", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.store:
        return run_rank(options)
    console = Console(width=None if sys.stdout.isatty() else 120, markup=False)
    figures, summary = [], []
    for processes in options.processes:
        with tempfile.TemporaryDirectory() as folder:
            children = start(options, processes, folder)
            try:
                show(console, children, figures, summary, options.json)
                if any([child.wait() for child in children]):
                    sys.exit(1)
            finally:
                for child in children:
                    child.kill()  # of those that have ended, nothing
    show_summary(console, summary)


def show(console, children, figures, summary, path):
    """Shows what the first of them tells, and adds it to what the file at ``path`` has."""
    for line in children[0].stdout:
        figures.append(json.loads(line))
        if "links" in figures[-1]:
            show_links(console, figures[-1])
        else:
            show_model(console, figures[-1], summary)
        if path:
            path.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
