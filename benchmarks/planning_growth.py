# SPDX-License-Identifier: Apache-2.0
"""How planning grows with the nodes of a program, and with the readers of a value.

    python benchmarks/planning_growth.py [--nodes 1000 4000 ...] [--cases REGEX] [--instructions]

Every row is a graph in the text form of docs/ir.md, planned by build/spmdx-opt. Times are the best
of the rounds. Costs asked: how often the search asks what a node would cost with some choice.
Demands seen: layouts that it looks at for that. Both do not depend on the machine. Instructions
are counted by valgrind's callgrind, which is far slower than the program itself.
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPT = Path(__file__).parent.parent / "build" / "spmdx-opt"
NODES = (1_000, 4_000, 16_000, 64_000)
FANS = (1, 100, 10_000)
SQUARE, ROW = "f32[64, 64]", "f32[64]"


# --- graphs ---------------------------------------------------------------------------------------


class Text:
    """Lines of a graph; values are numbered in order."""

    def __init__(self, mesh="mesh(data=2, model=2)"):
        self.lines, self.inputs, self.values, self.nodes = [mesh], [], 0, 0

    def input(self, rest):
        self.values += 1
        self.lines.append(f"%{self.values - 1} = input {rest}")
        return self.values - 1

    def node(self, call, of=SQUARE):
        self.values += 1
        self.nodes += 1
        self.lines.append(f"%{self.values - 1} : {of} = {call}")
        return self.values - 1

    def finish(self, *outputs):
        return "\n".join([*self.lines, *(f"return {output}" for output in outputs)]) + "\n"


def weight(text, name, cut="64, 64@model"):
    return text.input(f'"{name}" f32[{cut}] !f32[{cut}] state')


def weights(nodes, fan):
    """A chain of products; each weight is read by so many of them, one after the other."""
    text = Text()
    read = [weight(text, f"w{i}") for i in range(-(-nodes // fan))]
    x = text.input("f32[64@data, 64] !f32[64@data, 64]")
    for i in range(nodes):
        x = text.node(f"aten.mm(%{x}, %{read[i // fan]})")
    return text.nodes, text.finish(f"%{x}")


def trained(nodes, fan):
    """The same with gradients, which are summed over the uses of a weight, and new weights."""
    text = Text()
    uses = max(1, nodes // 6)
    read = [weight(text, f"w{i}") for i in range(-(-uses // fan))]
    x = [text.input("f32[64@data, 64] !f32[64@data, 64]")]
    for i in range(uses):
        x.append(text.node(f"aten.mm(%{x[-1]}, %{read[i // fan]})"))
    gradient, sums = x[-1], {}
    for i in reversed(range(uses)):
        w = read[i // fan]
        before = text.node(f"aten.permute(%{x[i]}, [1, 0])")
        part = text.node(f"aten.mm(%{before}, %{gradient})")
        sums[w] = text.node(f"aten.add.Tensor(%{sums[w]}, %{part}, 1)") if w in sums else part
        turned = text.node(f"aten.permute(%{w}, [1, 0])")
        gradient = text.node(f"aten.mm(%{gradient}, %{turned})")
    new = {w: text.node(f"aten.add.Tensor(%{w}, %{g}, 1)") for w, g in sums.items()}
    return text.nodes, text.finish(*(f"%{value} tied %{w}" for w, value in new.items()))


def recurrence(nodes, fan):
    """Each step reads a row of its own and the state; so many steps share their weight."""
    text = Text()
    steps = max(1, nodes // 4)
    read = [weight(text, f"w{i}") for i in range(-(-steps // fan))]
    rows = text.input(f"f32[{steps}, 64@data, 64] !f32[{steps}, 64@data, 64]")
    state = text.input("f32[64@data, 64] !f32[64@data, 64]")
    for i in range(steps):
        row = text.node(f"aten.select.int(%{rows}, 0, {i})")
        product = text.node(f"aten.mm(%{state}, %{read[i // fan]})")
        state = text.node(f"aten.tanh(%{text.node(f'aten.add.Tensor(%{product}, %{row}, 1)')})")
    return text.nodes, text.finish(f"%{state}")


def rows(nodes, fan):
    """Rows are taken from tables, so many from each, and summed."""
    text = Text()
    taken = max(1, nodes // 2)
    tables = [
        text.input(f"f32[{min(fan, taken)}, 64@model] !f32[{min(fan, taken)}, 64@model]")
        for _ in range(-(-taken // fan))
    ]
    total = None
    for i in range(taken):
        row = text.node(f"aten.select.int(%{tables[i // fan]}, 0, {i % fan})", ROW)
        total = row if total is None else text.node(f"aten.add.Tensor(%{total}, %{row}, 1)", ROW)
    return text.nodes, text.finish(f"%{total}")


def scattered(nodes, fan):
    """Ops drawn at random over the latest values; `fan`: nodes that share a weight."""
    draw = random.Random(1)
    text = Text()
    read = [weight(text, f"w{i}") for i in range(-(-nodes // fan))]
    cuts = ("64@data, 64", "64, 64@model", "64@data, 64@model", "64, 64")
    values = [text.input(f"f32[{cut}] !f32[{cut}]") for cut in cuts]
    for i in range(nodes):
        a, b = draw.choices(values[-40:], k=2)
        call = draw.choice(
            [
                f"aten.mm(%{a}, %{read[i // fan]})",
                f"aten.mm(%{a}, %{b})",
                f"aten.add.Tensor(%{a}, %{b}, 1)",
                f"aten.mul.Tensor(%{a}, %{b})",
                f"aten.relu(%{a})",
                f"aten.permute(%{a}, [1, 0])",
            ]
        )
        values.append(text.node(call))
    return text.nodes, text.finish(*(f"%{value}" for value in values[-40:]))


CASES = {f.__name__: f for f in (weights, trained, recurrence, rows, scattered)}


# --- measuring ------------------------------------------------------------------------------------


def seconds(path, rounds):
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([OPT, "--compile", path], stdout=subprocess.DEVNULL, check=True)
        best = min(best, time.perf_counter() - began)
    return best


# All passes up to the search, each of which may search variants; what the last one decides counts.
SEARCHED = [
    word
    for name in ("simplify", "split-constants", "propagate", "expand", "split-views", "search")
    for word in ("--pass", name)
]


def effort(path, passes=SEARCHED):
    """(costs asked, demands seen) of the search, after these passes."""
    done = subprocess.run(
        [OPT, *passes, "--effort", path], capture_output=True, text=True, check=True
    )
    found = re.search(r"costs asked (\d+) demands seen (\d+)", done.stdout)
    return int(found[1]), int(found[2])


OF_PASSES = "--toggle-collect=spmdx::compile*"  # without reading and printing text


def instructions(path, *settings, options=()):
    """Of the whole program, or of what the settings of callgrind say; options of spmdx-opt."""
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", *settings]
            + [OPT, "--compile", *options, path],
            capture_output=True,
            text=True,
            check=True,
        )
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def measure(case, nodes, fan, options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.txt"
        count, text = CASES[case](nodes, fan)
        path.write_text(text)
        costs, demands = effort(path)
        cells = [f"{seconds(path, options.rounds) / count * 1e6:.1f}"]
        cells += [f"{costs / count:.1f}", f"{demands / count:.1f}"]
        if options.instructions:
            cells.append(f"{instructions(path) / count:,.0f}")
    return [case, f"{fan:,}", f"{count:,}", *cells]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--fans", type=int, nargs="+", default=FANS)
    parser.add_argument("--cases", default="", help="a regular expression")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--write", type=Path, help="write the graphs into this folder, no more")
    options = parser.parse_args()
    cases = [
        (case, nodes, fan)
        for case in CASES
        if re.search(options.cases, case)
        for fan in options.fans
        for nodes in options.nodes
    ]
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for case, nodes, fan in cases:
            (options.write / f"{case}-{nodes}-{fan}.txt").write_text(CASES[case](nodes, fan)[1])
        return
    if options.instructions and not shutil.which("valgrind"):
        sys.exit("--instructions needs valgrind, which is not installed. Install it, or leave it.")
    head = ["graph", "readers", "nodes", "µs a node", "costs asked a node", "demands seen a node"]
    head += ["instructions a node"] if options.instructions else []
    # A row is printed when it is there: with --instructions all of them take hours.
    print("  ".join(head))
    for case in cases:
        row = measure(*case, options)
        print("  ".join(f"{cell:>{len(name)}}" for name, cell in zip(head, row, strict=True)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
