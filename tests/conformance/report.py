# SPDX-License-Identifier: Apache-2.0
"""What a conformance run prints: a table a suite beside DTensor's figures, and all troubles."""

import collections

from exceptions import reason_for
from rich.console import Console
from rich.table import Table
from settings import YARDSTICK

# DTensor of torch 2.13.0 on 4 devices, even sizes, random cotangents, measured once.
DTENSOR = {
    "ops": {
        "entries": "677",
        "pass whole": "459",
        "no dense tensor, or nothing to cut": "35 + 8",
        "wrong, raise or die": "175, of which 34 silently wrong",
        "crash or hang": "7 placements hang",
    },
    "modules": {"entries": "114", "pass whole": "30"},
    "optimizers": {"entries": "15", "pass whole": "11"},
}


def show(rows: list[dict]) -> int:
    """Prints all; returns how many entries are in trouble that exceptions.py does not list."""
    console = Console(width=120)
    suites = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        suite, setting, dtype, row["name"] = row["item"].split("/", 3)
        suites[suite][setting if dtype == "f32" else f"{setting}, {dtype}"].append(row)
    for suite, settings in suites.items():
        console.print(table_of(suite, settings))
        show_fallbacks(console, settings.get(YARDSTICK, []))
    bad = [row for row in rows if row.get("troubles") or "died" in row]
    for row in bad:
        said = row.get("died") or f"{row['troubles']} × {row['trouble'][0]}"
        known = reason_of(row)
        console.print(f"{row['item']}: {known or said}", markup=False, highlight=False)
    return sum(1 for row in bad if not reason_of(row))


def reason_of(row: dict) -> str | None:
    """Why the entry need not pass."""
    suite, _, dtype, name = row["item"].split("/", 3)
    return reason_for(suite, name, dtype)


def table_of(suite: str, settings: dict[str, list[dict]]) -> Table:
    """A column a setting, and DTensor's beside that which it was measured in."""
    table = Table("figure", title=suite)
    columns = []
    for setting, rows in settings.items():
        table.add_column(setting)
        columns.append(figures(rows))
        if setting == YARDSTICK and suite in DTENSOR:
            table.add_column(f"DTensor, {setting}")
            columns.append(DTENSOR[suite])
    for figure in figures([]):
        table.add_row(figure, *[column.get(figure, "–") for column in columns])
    return table


def figures(rows: list[dict]) -> dict[str, str]:
    ran = [r for r in rows if r.get("runs")]
    clean = [r for r in ran if not r["troubles"]]
    runs, fell = sum(r["runs"] for r in ran), sum(r["fell_back"] for r in ran)
    silent = [r for r in rows if not r.get("runs") and not r.get("troubles") and "died" not in r]
    return {
        "entries": str(len(rows)),
        "pass whole": str(len(clean)),
        "no dense tensor, or nothing to cut": str(len(silent)),
        "wrong, raise or die": str(len(rows) - len(clean) - len(silent)),
        "crash or hang": str(sum(1 for r in rows if "died" in r)),
        "cut without fallback somewhere": str(sum(1 for r in ran if r["fell_back"] < r["runs"])),
        "placements": f"{runs:,}",
        "of them equal in double precision only": f"{sum(r['rounded'] for r in ran):,}",
        "of them with a fallback": f"{fell:,} ({100 * fell / max(runs, 1):.1f} %)",
        "MB a device received": f"{sum(r['wire_bytes'] for r in ran) / 1e6:,.1f}",
    }


def show_fallbacks(console: Console, rows: list[dict]) -> None:
    """Every op without a rule, with how often it ran."""
    counts = collections.Counter()
    for row in rows:
        counts.update(row.get("fallbacks") or {})
    if counts:
        listed = ", ".join(f"{op} {count:,}" for op, count in counts.most_common())
        console.print(f"Ops without a rule: {listed}", markup=False, highlight=False)
