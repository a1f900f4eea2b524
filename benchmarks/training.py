# SPDX-License-Identifier: Apache-2.0
"""Training on one device: spmdx with its compiler beside torch.compile and plain PyTorch.

    python benchmarks/training.py [--nets "GPT, 4 layers of 128"] [--ways eager inductor]
        [--rounds 9] [--json FILE]

Each way has a process and one thread, and they take turns: a round times some steps in each of
them, after all kernels have taken over. Ratios are medians over rounds, of the times of one round,
so a slow moment of the machine hits all. All ways start from the same numbers; how far losses and
parameters are from plain PyTorch's after the same steps is printed. "torch.compile" compiles the
model, "torch.compile, all" the optimizer's step as well.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent / "training"))
from trained_nets import NETS  # noqa: E402
from trained_ways import WAYS, serve  # noqa: E402
from turns import workers  # noqa: E402

ROUND = 1.0  # seconds of the first way, about


def measured(net, ways, rounds):
    """{way: its seconds a step in each round, the share of flops in kernels, numbers, warnings}."""
    found = {way: {"seconds": []} for way in ways}
    with workers(serve, {way: (net, way) for way in ways}) as pipes:
        first = pipes[ways[0]]
        first.send(2)
        steps = max(2, round(ROUND / (first.recv() / 2)))
        for pipe in list(pipes.values())[1:]:  # all take the same number of steps
            pipe.send(2)
            pipe.recv()
        for _ in range(rounds):
            for way, pipe in pipes.items():
                pipe.send(steps)
                found[way]["seconds"].append(pipe.recv() / steps)
        for way, pipe in pipes.items():
            pipe.send(None)
            found[way] |= pipe.recv()
    return found


def ratio(found, way, beside):
    """The median over rounds of how long a step takes in this way, beside the other."""
    pairs = zip(found[way]["seconds"], found[beside]["seconds"], strict=True)
    return statistics.median(mine / other for mine, other in pairs)


def off(numbers, expected):
    """The largest difference, as a share of the number."""
    pairs = zip(numbers, expected, strict=True)
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in pairs)


def rows_of(net, ways, rounds):
    found = measured(net, ways, rounds)
    return [
        {
            "net": net,
            "way": way,
            "ms": statistics.median(found[way]["seconds"]) * 1e3,
            "beside": {other: ratio(found, way, other) for other in ways if other != way},
            "compiled_flops": found[way]["compiled_flops"],
            "off": off(found[way]["numbers"], found[ways[0]]["numbers"]),
            "said": found[way]["said"],
        }
        for way in ways
    ]


def show(rows):
    title = "A step of training: milliseconds, and the ratio to other ways"
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(row["way"] for row in rows))
    for name in ("net", "way"):
        table.add_column(name)
    for name in ("ms", *(f"/ {name}" for name in names), "compiled", "off"):
        table.add_column(name, justify="right")
    for row in rows:
        ratios = (row["beside"].get(name) for name in names)
        compiled = "" if row["compiled_flops"] is None else f"{row['compiled_flops']:.1%}"
        shown = ("" if r is None else f"{r:.2f}" for r in ratios)
        table.add_row(
            row["net"], row["way"], f"{row['ms']:.4g}", *shown, compiled, f"{row['off']:.1e}"
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    for row in rows:
        for line in row["said"]:
            print(f"{row['net']}, {row['way']}: {line}")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=tuple(NETS), default=list(NETS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    return parser.parse_args()


def main():
    options = parsed()
    rows = []
    for net in options.nets:
        print(net, flush=True)
        rows += rows_of(net, options.ways, options.rounds)
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
