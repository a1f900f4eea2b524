# SPDX-License-Identifier: Apache-2.0
"""What whole annotated programs move, work and hold, beside figures derived by hand.

    python benchmarks/programs.py [--names REGEX] [--causes] [--topology bytes] [--json FILE]

Every row is a small program in a layout that people use. Its derived bytes are those a device
receives in a steady step of the best program that we could write by hand: which collectives they
are stands beside them, in letters (AG all_gather, RS reduce_scatter, AR all_reduce, A2A
all_to_all; P the parameters, L the layers) and in programs/rows_*.py as formulas. Work is that of
all devices, as a multiple of one device's. Nothing runs. The exit status is 1 where a program
exceeds what was derived, and program_table.py does not say why. With links so slow that bytes alone
decide, a plan may repeat work to save them; what moves too much even so, the search did not find.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path

import spmdx
from rich.console import Console
from rich.table import Table
from spmdx.topology import Level

sys.path.insert(0, str(Path(__file__).parent / "programs"))
from program_row import measure  # noqa: E402
from program_table import ROWS  # noqa: E402

BYTES_ALONE = spmdx.Topology("bytes alone", (Level(0, 0, 0, 10**7),))
HEAD = ("program", "mesh", "MB", "derived", "ratio", "of", "work", "peak MB", "derived", "step ms")


def mega(n):
    return f"{n / 1e6:,.2f}" if n is not None else ""


def ratio(found, row):
    return found.bytes / row.bytes if row.bytes else float(found.bytes > 0)


def figures(row, found, seconds):
    return {
        **dict(bytes=found.bytes, derived_bytes=row.bytes, ratio=ratio(found, row)),
        **dict(work=found.work, derived_work=row.work, peak=found.peak, derived_peak=row.peak),
        **dict(step_ns=found.step_ns, above=found.above(row), seconds=seconds),
    }


def mark(row, found):
    above = ", ".join(found.above(row))
    return f"ABOVE: {above}" if above else row.accepted.why


def add_row(table, row, found):
    mesh = " x ".join(f"{axis} {size}" for axis, size in row.axes.items())
    shares = f"{ratio(found, row):.2f}", row.why, f"{found.work:.2f}"
    peaks = mega(found.peak), mega(row.peak)
    sizes = mega(found.bytes), mega(row.bytes)
    table.add_row(
        row.name, mesh, *sizes, *shares, *peaks, f"{found.step_ns / 1e6:,.1f}", mark(row, found)
    )


def show_causes(console, row, found, most=5):
    """The collectives that move most."""
    console.print(f"[bold]{row.name}[/bold]", highlight=False)
    for c in sorted(found.collectives, key=lambda c: -c.bytes * c.count)[:most]:
        text = f"  {c.kind} over {'/'.join(c.axes)}, {c.count} x {c.bytes:,}: {c.cause} {c.source}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", default="", help="a regular expression that names match")
    parser.add_argument("--causes", action="store_true", help="most of what moves in rows above")
    parser.add_argument("--topology", default="in-process", help="or bytes: they alone decide")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    return parser.parse_args()


def main():
    options = arguments()
    spmdx.set_topology(BYTES_ALONE if options.topology == "bytes" else options.topology)
    console = Console(width=None if sys.stdout.isatty() else 220)
    table = Table(*HEAD, "", title="Programs: what a device receives, works and holds in a step")
    found, texts = {}, {}
    for name, row in ROWS.items():
        if re.search(options.names, name):
            began = time.process_time()
            found[name] = measure(row)
            texts[name] = figures(row, found[name], time.process_time() - began)
            add_row(table, row, found[name])
    console.print(table)
    above = [name for name, each in found.items() if each.above(ROWS[name])]
    for name in above if options.causes else ():
        show_causes(console, ROWS[name], found[name])
    print(f"{len(found)} programs, {len(above)} above what was derived")
    if options.json:
        options.json.write_text(json.dumps(texts, indent=2) + "\n")
    sys.exit(bool(above))


if __name__ == "__main__":
    main()
