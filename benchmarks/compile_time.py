# SPDX-License-Identifier: Apache-2.0
"""What planning costs in the modes of the example: its share of the first step, and beside a step.

    python benchmarks/compile_time.py [--tiny] [--width 128] [--rounds 7] [--json figures.json]

Every run is a process of its own, in which nothing is known; modes take turns. "share" is planning
by the first step, from its call until its results are there. "prepare" looks up kernels and makes
routes, when a plan runs first. "beside" is both by a step of the same program without annotations,
on one device, recorded and run in that process right after; its plan is known by then. Ratios are
medians of the rounds'.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from pathlib import Path

import spmdx
import torch
from predicted import BATCH, DEVICES, stepper
from rich.console import Console
from rich.table import Table
from train_gpt import GPT, MODES, Config

SHARE, BESIDE = 0.30, 0.30  # goals, at most
STEPS = 5  # of the program without annotations


class Planned(logging.Handler):
    """Seconds that plans took, as the log has them."""

    def __init__(self):
        super().__init__()
        self.seconds, self.ops = 0.0, 0

    def emit(self, record):
        ops, _, seconds, *_ = record.args
        self.seconds, self.ops = self.seconds + seconds, self.ops + ops


def in_full(step):
    """Seconds of a step until its results are there."""
    began = time.perf_counter()
    step()
    spmdx.sync(wait=True)
    return time.perf_counter() - began


def before_first_op(step):
    """Seconds that a step has begun to run before its first op does, and those of the whole."""
    spmdx._C.watch_for_times(True)
    spmdx._C.take_measured()
    seconds = in_full(step)
    ranges = spmdx._C.take_measured()["ranges"]
    spmdx._C.watch_for_times(False)
    waited = 0
    for whole in (r for r in ranges if r["kind"] == "step"):
        first = min(
            r["start_ns"] for r in ranges if r["kind"] == "node" and r["step"] == whole["step"]
        )
        waited += first - whole["start_ns"]
    return waited / 1e9, seconds


def unsharded(config):
    """One training step without annotations."""
    torch.manual_seed(0)
    model = GPT(config).to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    ids = torch.randint(config.vocab, (BATCH, config.context + 1))
    x, y = ids[:, :-1].contiguous().to("spmdx"), ids[:, 1:].contiguous().to("spmdx")

    def step():
        torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()

    return step


def measure(mode, config):
    """Seconds of one mode in this process, which has planned nothing."""
    torch.set_num_threads(1)
    spmdx.runtime.set_device_count(DEVICES)
    planned = Planned()
    logger = logging.getLogger("spmdx.planning")
    logger.addHandler(planned)
    logger.setLevel("INFO")
    step = stepper(mode, config)
    spmdx.sync(wait=True)
    planned.seconds = planned.ops = 0
    waited, first = before_first_op(step)
    made = {"plan_s": planned.seconds, "ops": planned.ops, "first_s": first}
    for _ in range(2):  # the second step has a plan of its own: the optimizer's state is there
        in_full(step)
    loaded, _ = before_first_op(step)
    plain = unsharded(config)
    for _ in range(3):
        in_full(plain)
    beside = statistics.median(in_full(plain) for _ in range(STEPS))
    return made | {"prepare_s": max(0.0, waited - loaded), "unsharded_s": beside}


def in_own_process(mode, options):
    command = [sys.executable, __file__, "--mode", mode, *["--tiny"] * options.tiny]
    command += ["--width", str(options.width)] if options.width else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def median_of(runs, ratio):
    return statistics.median(ratio(run) for run in runs)


def show(found):
    table = Table(title="Planning in the first step", title_justify="left")
    for name in ("mode", "ops", "plan ms", "prepare ms", "first step ms", "share", "beside"):
        table.add_column(name, justify="left" if name == "mode" else "right")
    for mode, runs in found.items():
        times = (f"{median_of(runs, lambda r, k=key: r[k]) * 1e3:,.1f}" for key in TIMES)
        ratios = (f"{median_of(runs, ratio):.0%}" for ratio in RATIOS.values())
        table.add_row(mode, f"{runs[0]['ops']:,}", *times, *ratios)
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    print(f"goals: share at most {SHARE:.0%}, beside at most {BESIDE:.0%}")


TIMES = ("plan_s", "prepare_s", "first_s")
RATIOS = {
    "share": lambda run: run["plan_s"] / run["first_s"],
    "beside": lambda run: (run["plan_s"] + run["prepare_s"]) / run["unsharded_s"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a small model, for a quick try")
    parser.add_argument("--width", type=int, help="of the model; that of the example if not given")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    layers, width, context = (2, 32, 16) if options.tiny else (4, 128, 64)
    width = options.width or width
    config = Config(96, layers=layers, width=width, context=context, dropout=0.0)
    if options.mode:
        print(json.dumps(measure(options.mode, config)))
        return
    found = {mode: [] for mode in MODES[1:]}
    for _ in range(options.rounds):
        for mode, runs in found.items():
            runs.append(in_own_process(mode, options))
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
