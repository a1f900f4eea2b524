# SPDX-License-Identifier: Apache-2.0
"""What it costs that the sizes of a program change from step to step.

    python benchmarks/other_sizes.py [--programs cache ...] [--rounds 5] [--no-instructions]

A cache of keys that grows by 24 tokens, 30 routings of rows to experts, and 50 sizes of a batch,
each on 4 x 2 virtual devices. A round forgets all plans, goes through all sizes, and goes through
them again: "first" is the time of the former by that of the latter, medians of the rounds.
"searched": plans of a first pass whose layouts were searched for. "planning": instructions of a
plan that follows another one by those of its own search, in the mean of some sizes, as valgrind
counts them in build/spmdx-opt; rules of calls that both programs have are made once.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from planning_growth import OF_PASSES, instructions  # noqa: E402

SAMPLED = 5  # sizes of which instructions are counted
NAMES = ("cache", "routings", "batches")


# --- one process ----------------------------------------------------------------------------------


def measure(name, rounds):
    sys.path.insert(0, str(HERE / "sizes"))
    import spmdx
    import torch
    from sized_programs import PROGRAMS

    torch.set_num_threads(1)
    torch.manual_seed(1)
    program = PROGRAMS[name]()

    def timed():
        begun, before = time.perf_counter(), spmdx.debug.counters()
        program.run()
        spmdx.sync(wait=True)
        after = spmdx.debug.counters()
        made = {key: after[key] - before[key] for key in ("plans_compiled", "plans_searched")}
        return time.perf_counter() - begun, made

    timed(), timed()
    if rounds == 0:
        return {}
    firsts, seconds = [], []
    for _ in range(rounds):
        spmdx._C.clear_cache()
        first, made = timed()
        second, again = timed()
        assert again["plans_compiled"] == 0, again
        firsts.append(first)
        seconds.append(second)
    return {**made, "first": statistics.median(firsts) / statistics.median(seconds)}


# --- all of them ----------------------------------------------------------------------------------


def child(name, rounds, **variables):
    command = [sys.executable, __file__, "--child", name, "--rounds", str(rounds)]
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def families(folder):
    """Traced programs that differ by numbers alone, largest first."""
    found = {}
    for path in sorted(folder.glob("*-00-traced.txt")):
        text = re.sub(r"//.*", "", path.read_text())
        found.setdefault(re.sub(r"\b\d+\b", "", text), []).append(path)
    return sorted(found.values(), key=lambda paths: -len(paths[0].read_text()) * len(paths))


def planning(name):
    """Instructions of plans that follow, by those of searches."""
    with tempfile.TemporaryDirectory() as dump:
        folder = Path(dump)
        child(name, 0, SPMDX_DUMP=dump)
        first, *others = families(folder)[0]
        alone, follow, search = instructions(first, OF_PASSES), 0, 0
        for other in random.Random(0).sample(others, SAMPLED):
            follow += instructions(other, OF_PASSES, options=("--like", first)) - alone
            search += instructions(other, OF_PASSES)
    return follow / search


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--instructions", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.child:
        print(json.dumps(measure(options.child, options.rounds)))
        return
    counted = options.instructions and shutil.which("valgrind")
    table = Table("program", "plans", "searched", "first", "planning")
    for name in options.programs:
        figures = child(name, options.rounds)
        share = f"{planning(name):.3f}" if counted else "-"
        made = str(figures["plans_compiled"]), str(figures["plans_searched"])
        table.add_row(name, *made, f"{figures['first']:.2f}", share)
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    main()
