# SPDX-License-Identifier: Apache-2.0
"""Kinds of programs on spmdx beside eager PyTorch: where a step takes more than its goal.

    python benchmarks/cliffs.py [--names REGEX] [--devices 1,4,8] [--json FILE]

Every row is a small program, run in turn as plain eager PyTorch and on virtual devices, in one
process of one thread. A ratio is the median of the paired ratios of steady steps, until all that a
step computes is there; "busy" is that of processors' time, for a loaded machine. Devices share the
machine's cores: goals are those of one device, and on a mesh only where one is given. Some rows are
figures of a fresh process instead. Beside the times stands what a steady step did: how often it
waited for a number, plans that it made, ops that it recorded. The exit status is 1 where a row is
above its goal, and cliff_table.py does not say why.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import spmdx
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent / "cliffs"))
import cliffs_figures  # noqa: E402
from cliff_row import measure  # noqa: E402
from cliff_table import FIGURES, OPEN, ROWS  # noqa: E402

LIMIT = 120  # seconds that the process of a figure may take
TIMES = ("program", "what", "devices", "eager ms", "spmdx ms", "ratio", "busy", "goal")
STEP = ("syncs", "plans", "ops")


def milliseconds(seconds):
    return f"{statistics.median(seconds) * 1e3:,.2f}"


def mark(name, above):
    return (OPEN.get(name) or "ABOVE") if above else ""


def time_row(row, devices, table):
    """What a row took on so many devices; a line of `table` is added."""
    found = measure(row, devices)
    goal = row.goal if devices in row.goal.judged else None
    above = goal is not None and not goal.met(found)
    times = milliseconds(found.eager), milliseconds(found.ours), f"{found.ratio:.2f}"
    busy = f"{found.busy:.2f}"
    counted = [f"{found.counted[key]:,}" for key in STEP]
    shown = row.name, row.what, str(devices), *times, busy, goal.text() if goal else "", *counted
    table.add_row(*shown, mark(row.name, above))
    took = dict(eager=found.eager, spmdx=found.ours, ratio=found.ratio, busy=found.busy)
    return {**took, **found.counted, "above": above}


def take_figure(row, table):
    """A figure, taken by a fresh process; None if that fails or takes too long."""
    command = [sys.executable, cliffs_figures.__file__, row.name]
    kept = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as in a package that is installed
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True, env=kept
        )
        value = json.loads(done.stdout)
        shown = f"{value:,.2f}"
    except subprocess.TimeoutExpired:
        value, shown = None, f"over {LIMIT} s"
    except subprocess.CalledProcessError as error:  # its traceback stands on stderr
        value, shown = None, f"failed: {error.returncode}"
    above = value is None or value > row.most
    goal = f"{row.most:g} {row.unit}"
    table.add_row(
        row.name, row.what, "", "", shown, "", "", goal, "", "", "", mark(row.name, above)
    )
    return dict(value=value, unit=row.unit, above=above)


def counts_of(row, devices):
    """The counts of devices that a row is taken on."""
    return [n for n in devices if n in row.goal.judged or not row.goal.only]


def run(chosen, devices, found, table):
    """Every chosen row; yields the name of each line that was added."""
    for row in ROWS.values():
        if chosen.search(row.name):
            for n in counts_of(row, devices):
                found[f"{row.name}, {n} devices"] = time_row(row, n, table)
                yield row.name
    for row in FIGURES.values():
        if chosen.search(row.name):
            found[row.name] = take_figure(row, table)
            yield row.name


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", default="", help="a regular expression that names match")
    parser.add_argument("--devices", default="1,4,8", help="counts of virtual devices")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    return parser.parse_args()


def main():
    options = arguments()
    devices = [int(text) for text in options.devices.split(",")]
    torch.set_num_threads(1)
    spmdx.runtime.set_device_count(max(devices))
    console = Console(width=None if sys.stdout.isatty() else 220, markup=False)
    table = Table(*TIMES, *STEP, "", title="Programs on spmdx beside eager PyTorch")
    found, names = {}, []
    for name in run(re.compile(options.names), devices, found, table):
        names.append(name)
        print(f"{len(names)} {name}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=2) + "\n")
    console.print(table)
    above = {n for n, each in zip(names, found.values(), strict=True) if each["above"]}
    print(
        f"{len(set(names))} programs, {len(above)} above their goals, {len(above - set(OPEN))} new"
    )
    sys.exit(bool(above - set(OPEN)))


if __name__ == "__main__":
    main()
