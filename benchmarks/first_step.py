# SPDX-License-Identifier: Apache-2.0
"""The first steps of a program, with a compiler behind its back beside none.

    python benchmarks/first_step.py [--nets "GPT, 4 layers of 128"] [--compilers inductor xla]
        [--steps 1] [--rounds 9] [--json FILE]

Each run is a process of its own, with no kernel on disk, and they take turns. The clock runs from
the first op of the first step to the last result of the last of the steps: recording, planning,
cutting into segments, and running, while the compiler's process begins. Ratios are medians over
rounds, of two runs of one round.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent / "training"))
from trained_nets import NETS  # noqa: E402
from trained_ways import serve_first_steps  # noqa: E402
from turns import workers  # noqa: E402

COMPILERS = ("inductor", "xla", "iree", "onnxruntime")


def seconds(net, compiler, steps):
    """Of the first steps, in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPMDX_CACHE"] = folder
        with workers(serve_first_steps, {"run": (net, compiler)}, tells=False) as pipes:
            pipes["run"].send(steps)
            return pipes["run"].recv()


def row_of(net, compiler, steps, rounds):
    pairs = [
        (seconds(net, None, steps), seconds(net, compiler, steps))
        if turn % 2
        else (seconds(net, compiler, steps), seconds(net, None, steps))[::-1]
        for turn in range(rounds)
    ]
    ratios = sorted(with_it / without for without, with_it in pairs)
    return {
        "net": net,
        "compiler": compiler,
        "without_ms": statistics.median(without for without, _ in pairs) * 1e3,
        "ratio": statistics.median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
    }


def show(rows, steps):
    title = f"The first {steps} step(s), with a compiler beside none"
    table = Table(title=title, title_justify="left")
    for name in ("net", "compiler"):
        table.add_column(name)
    for name in ("ms without", "ratio", "lowest", "highest"):
        table.add_column(name, justify="right")
    for row in rows:
        ratios = (f"{row[name]:.3f}" for name in ("ratio", "lowest", "highest"))
        table.add_row(row["net"], row["compiler"], f"{row['without_ms']:.4g}", *ratios)
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=tuple(NETS), default=list(NETS)[:4])
    parser.add_argument("--compilers", nargs="+", choices=COMPILERS, default=["inductor", "xla"])
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    asked = parser.parse_args()
    rows = []
    for net in asked.nets:
        for compiler in asked.compilers:
            rows.append(row_of(net, compiler, asked.steps, asked.rounds))
            print(rows[-1], flush=True)
    show(rows, asked.steps)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
