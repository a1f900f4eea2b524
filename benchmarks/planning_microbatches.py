# SPDX-License-Identifier: Apache-2.0
"""How planning a pipelined training step grows with its microbatches.

    python benchmarks/planning_microbatches.py [--microbatches 2 4 8 16 64]

The step is that of benchmarks/pipelines.py, a GPT on two stages with AdamW, and a data axis of two
devices. Three loops: the batch is cut before it, in it, and losses are kept, or added up. It is
planned, not run. Planned microbatches: how many of them the passes up to the search see. Costs
asked: how often the search asks what a node would cost with some choice. Instructions are those of
all passes, counted by valgrind's callgrind; without valgrind they are left out.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from planning_growth import OF_PASSES, OPT, effort, instructions  # noqa: E402

LOOPS = ("cut before", "cut inside", "added up")


# --- the program, traced in a process of its own --------------------------------------------------


def parts_of(x, y, m, loop):
    if loop == "cut before":
        return zip(x.chunk(m), y.chunk(m), strict=True)
    rows = len(x) // m
    return ((x[i * rows : (i + 1) * rows], y[i * rows : (i + 1) * rows]) for i in range(m))


def trace(m, loop):
    """Plans two steps of the program; the second one has the optimizer's state as input."""
    sys.path.insert(0, str(Path(__file__).parent / "pipelines"))
    import spmdx
    import torch
    from pipeline_programs import CONFIG, ROWS, build_model, loss_of, make_optimizer

    spmdx.runtime.set_device_count(4)
    mesh = spmdx.Mesh(range(4), (2, 2), ("pipe", "data"))
    model = build_model().to("spmdx")
    spmdx.nn.pipeline(model, mesh, cuts=["blocks.3"])
    optimizer = make_optimizer(model.parameters())
    with spmdx.plan_only():
        for _ in range(2):
            rows = (2, m * ROWS, CONFIG.context)
            x, y = (
                spmdx.mark_sharding(half.to("spmdx"), mesh, ("data", None))
                for half in torch.randint(CONFIG.vocab, rows).unbind(0)
            )
            kept, total = [], 0
            for xs, ys in parts_of(x, y, m, loop):
                loss = loss_of(model(xs), ys)
                (loss / m).backward()
                if loop == "added up":
                    total = total + loss.detach()
                else:
                    kept.append(loss.detach())
            optimizer.step()
            optimizer.zero_grad()
            spmdx.mark_step()
            spmdx.sync(wait=True)


# --- counting -------------------------------------------------------------------------------------


def run(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, check=True)


def passes_up_to(last):
    names = run(OPT, "--passes").stdout.split()
    return [word for name in names[: names.index(last) + 1] for word in ("--pass", name)]


def planned_microbatches(path):
    phases = re.findall(r" phase (\d+)\b", run(OPT, "--pass", "roll", path).stdout)
    return len({int(phase) for phase in phases if int(phase) % 2 == 0})


def counts(m, loop, count_instructions):
    """(planned microbatches, costs asked, instructions or None) of the program's second step."""
    with tempfile.TemporaryDirectory() as folder:
        settings = os.environ | {"SPMDX_DUMP": folder, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--trace", str(m), loop]
        subprocess.run(command, env=settings, check=True)
        path = max(Path(folder).glob("*-00-traced.txt"), key=lambda p: p.stat().st_size)
        return (
            planned_microbatches(path),
            effort(path, passes_up_to("search"))[0],
            instructions(path, OF_PASSES) if count_instructions else None,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--microbatches", type=int, nargs="+", default=[2, 4, 8, 16, 64])
    parser.add_argument("--trace", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trace:
        return trace(int(options.trace[0]), options.trace[1])
    from rich.console import Console
    from rich.table import Table

    table = Table("loop", "microbatches", "planned", "costs asked", "instructions", "to the first")
    for loop in LOOPS:
        first = None
        for m in options.microbatches:
            planned, costs, found = counts(m, loop, shutil.which("valgrind") is not None)
            first = first or found
            cells = [f"{found:,}", f"{found / first:.2f}"] if found else ["", ""]
            table.add_row(loop, str(m), str(planned), f"{costs:,}", *cells)
        table.add_section()
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
