# SPDX-License-Identifier: Apache-2.0
"""What spmdx predicts for machines that it never saw, beside what others measured on them.

    python benchmarks/foresight.py [--tables "Megatron-LM 2021" ...] [--write]

Nothing runs: every step is planned, as ``spmdx.auto.predict`` does. Of each table one row is left
out, on which the device's one constant is fitted: the share of the profile's rates that products of
matrices reach. ``--write`` puts the figures where ``docs/foresight.md`` shows them.
"""

import argparse
import pathlib
import sys

import spmdx

HERE = pathlib.Path(__file__).parent / "foresight"
sys.path.insert(0, str(HERE))
from fitting import fitted  # noqa: E402
from shown import FIGURES, read, written  # noqa: E402
from tables import TABLES  # noqa: E402


def predictions(table):
    """The figures of a table: of each row what was published and predicted, in its unit."""
    first = table.rows[table.fitted_on]
    share, hardware = fitted(
        table.hardware, lambda hardware: table.predict(first, hardware), first.seconds
    )
    rows = []
    for row in table.rows:
        seconds = table.predict(row, hardware)
        rows.append([row.name, row.figure, row.figure * row.seconds / seconds, row is first])
        print(f"{table.name}, {row.name}: {row.figure:g} published, {rows[-1][2]:.4g} predicted")
    return {"share": round(share, 4), "unit": table.unit, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [table.name for table in TABLES]
    parser.add_argument("--tables", nargs="+", default=names, choices=names)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    spmdx.runtime.set_device_count(8)
    figures = read()
    for table in TABLES:
        if table.name in options.tables:
            figures[table.name] = predictions(table)
            if options.write:
                written(figures)
    if options.write:
        print(f"{FIGURES} and docs/foresight.md are written")


if __name__ == "__main__":
    main()
