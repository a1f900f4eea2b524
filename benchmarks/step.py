# SPDX-License-Identifier: Apache-2.0
"""What being lazy and sharded costs on the host: recording an op, a cached step, a whole step.

    python benchmarks/step.py [--rounds 7] [--json figures.json]

Everything is timed in one process in interleaved rounds, eager PyTorch first in each; ratios are
medians of the rounds' ratios, so a slow moment of the machine hits both sides.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path

import spmdx
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from train_gpt import GPT, Config  # noqa: E402

# Kernels take no time to speak of in the small one, so its eager step is PyTorch's own host time.
SMALL = Config(vocab=8, layers=2, width=8, heads=8, context=2, dropout=0.0)
CONFIG = Config(vocab=96, layers=2, width=128, heads=8, context=64, dropout=0.0)
BATCH, DEVICE_COUNTS, OPS = 16, (1, 2, 4, 8), 1000


# --- recording one op -----------------------------------------------------------------------------


def op_cases(device):
    """Ops as a model calls them: no gradient, small operands, so that the call dominates."""
    x, y = torch.ones(16, 16).to(device), torch.ones(16, 16).to(device)
    return {
        "add": lambda: x + y,
        "mul by a number": lambda: x * 1.5,
        "relu": lambda: torch.relu(x),
        "mm": lambda: x @ y,
        "sum over a dim": lambda: x.sum(1),
        "transpose": lambda: x.t(),
        "view": lambda: x.view(256),
        "slice": lambda: x[2:9],
        "softmax": lambda: x.softmax(-1),
        "add_ in place": lambda: x.add_(y),
    }


def microseconds_a_call(call, repeats=OPS):
    """Host microseconds of one call; the result is dropped at once, so nothing is left to run."""
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - began) / repeats * 1e6


def measure_ops(rounds):
    """{op: (eager µs, record µs)}: the smallest over the rounds, noise only ever adds."""
    eager, lazy = op_cases("cpu"), op_cases("spmdx")
    found = {name: ([], []) for name in eager}
    for _ in range(rounds):
        for name in eager:
            found[name][0].append(microseconds_a_call(eager[name]))
            found[name][1].append(microseconds_a_call(lazy[name]))
            spmdx.mark_step()
            spmdx.sync(wait=True)
    return {name: (min(a), min(b)) for name, (a, b) in found.items()}


# --- steps ----------------------------------------------------------------------------------------


class Trainer:
    """Forward, backward and AdamW of a 2-layer GPT, on the CPU or on a data-parallel mesh."""

    def __init__(self, config, batch, devices=None):
        torch.manual_seed(0)
        device = "cpu" if devices is None else "spmdx"
        self.model = GPT(config).to(device)
        self.mesh = spmdx.Mesh(range(devices), (devices,), ("data",)) if devices else None
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        ids = torch.randint(config.vocab, (batch, config.context + 1))
        self.x, self.y = ids[:, :-1].contiguous().to(device), ids[:, 1:].contiguous().to(device)
        if self.mesh is not None:
            spmdx.mark_sharding(self.x, self.mesh, ("data", None))
            spmdx.mark_sharding(self.y, self.mesh, ("data", None))
            spmdx.sync(wait=True)

    def step(self):
        """(seconds the host was busy, seconds until the results are there)."""
        began = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.999  # as a schedule would: must not cost a plan
        loss = F.cross_entropy(self.model(self.x).flatten(0, 1), self.y.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.mesh is None:
            return (time.perf_counter() - began,) * 2
        spmdx.mark_step()
        host = time.perf_counter() - began
        spmdx.sync(wait=True)
        return host, time.perf_counter() - began


def measure_steps(config, batch, rounds, warm_up=4):
    """Per device count: host and whole times of each round beside eager's, plans after warm-up."""
    eager = Trainer(config, batch)
    sharded = {n: Trainer(config, batch, n) for n in DEVICE_COUNTS}
    for trainer in (eager, *sharded.values()):
        for _ in range(warm_up):
            trainer.step()
    plans = spmdx.debug.counters()["plans_compiled"]
    times = {"eager": [], **{n: [] for n in DEVICE_COUNTS}}
    gc.disable()
    for _ in range(rounds):
        times["eager"].append(eager.step())
        for n, trainer in sharded.items():
            times[n].append(trainer.step())
    gc.enable()
    return times, spmdx.debug.counters()["plans_compiled"] - plans


def ratios(times, which):
    """{devices: median over rounds of (its time / eager's time of the same round)}."""
    return {
        n: statistics.median(a[which] / b[1] for a, b in zip(times[n], times["eager"], strict=True))
        for n in DEVICE_COUNTS
    }


# --- the report -----------------------------------------------------------------------------------


def show(figures):
    console = Console(width=None if sys.stdout.isatty() else 110)
    ops = Table("op", "eager µs", "record µs", "over eager µs", title="One op, called from Python")
    for name, (eager, lazy) in figures["ops_us"].items():
        ops.add_row(name, f"{eager:.2f}", f"{lazy:.2f}", f"{lazy - eager:+.2f}")
    console.print(ops)
    steps = Table(
        "devices",
        "host time / eager's host time",
        "whole step / eager's",
        title="2-layer GPT step, data parallel; eager: host "
        f"{figures['eager_host_ms']:.1f} ms, whole step {figures['eager_step_ms']:.1f} ms",
    )
    for n in DEVICE_COUNTS:
        steps.add_row(str(n), f"{figures['host_ratio'][n]:.2f}", f"{figures['step_ratio'][n]:.2f}")
    console.print(steps)
    console.print(f"plans compiled after warm-up, learning rate changing: {figures['new_plans']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, help="torch.set_num_threads; default: torch's own")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    spmdx.runtime.set_device_count(max(DEVICE_COUNTS))

    figures = {"ops_us": measure_ops(options.rounds)}
    times, figures["new_plans"] = measure_steps(CONFIG, BATCH, options.rounds)
    small, _ = measure_steps(SMALL, 8, options.rounds * 5)
    figures["eager_step_ms"] = statistics.median(t[1] for t in times["eager"]) * 1e3
    figures["eager_host_ms"] = statistics.median(t[1] for t in small["eager"]) * 1e3
    figures["host_ratio"], figures["step_ratio"] = ratios(small, 0), ratios(times, 1)
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
