# SPDX-License-Identifier: Apache-2.0
"""The tables and the picture that `train_gpt.py --demo` shows."""

from collections import Counter

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.table import Table
from rich.text import Text

NAMES = {
    "eager": "plain PyTorch (cpu)",
    "dp": "data parallel",
    "fsdp": "fully sharded",
    "tp": "tensor parallel",
    "dp_tp": "data x model",
}
COMPARED = 50  # steps; later ones drift apart as rounding grows through AdamW


def largest_difference(losses, reference):
    """Largest absolute difference of the first losses of two runs."""
    pairs = zip(losses[:COMPARED], reference[:COMPARED], strict=True)
    return max(abs(a - b) for a, b in pairs)


def table_of_modes(runs):
    """One row a mode: what it learned and what it cost."""
    reference = runs[0]
    table = Table(title="One model, one loop, five ways to lie on the devices (dropout 0)")
    for title in (
        "mode",
        "first loss",
        "last loss",
        f"largest diff., {COMPARED} steps",
        "collectives a step",
        "kB on the wire a step, device",
        "kB of parameters a device",
        "step time / eager",
    ):
        table.add_column(title, justify="left" if title == "mode" else "right")
    for run in runs:
        wire = ("-", "-")
        if run.report is not None:
            count = sum(c.count for c in run.report.collectives)
            wire = (str(count), f"{run.report.wire_bytes / 1e3:,.1f}")
        same = run is reference
        table.add_row(
            NAMES[run.mode],
            f"{run.losses[0]:.4f}",
            f"{run.losses[-1]:.4f}",
            "-" if same else f"{largest_difference(run.losses, reference.losses):.1e}",
            *wire,
            f"{run.parameter_bytes / 1e3:,.1f}",
            f"{run.step_seconds * 1e3:.0f} ms"
            if same
            else f"{run.step_seconds / reference.step_seconds:.2f}",
        )
    return table


def merged(collectives):
    """(kind, axes, cause, source) → [count, bytes] of equal ones together, most bytes first."""
    rows = {}
    for c in collectives:
        row = rows.setdefault((c.kind, ", ".join(c.axes), c.cause, c.source), [0, 0])
        row[0] += c.count
        row[1] += c.bytes * c.count
    return sorted(rows.items(), key=lambda item: -item[1][1])


def table_of_collectives(run, shown=10):
    """The collectives of one step: what moved, why, and the line of the program it stems from."""
    table = Table(title=f"Collectives of one step, {NAMES[run.mode]}")
    for title in ("kind", "axes", "count", "kB", "cause", "source"):
        table.add_column(title, justify="right" if title in ("count", "kB") else "left")
    rows = merged(run.report.collectives)
    for (kind, axes, cause, source), (count, size) in rows[:shown]:
        table.add_row(kind, axes, str(count), f"{size / 1e3:,.1f}", Text(cause), source)
    kinds, rest = Counter(), 0
    for (kind, *_), (count, size) in rows[shown:]:
        kinds[kind] += count
        rest += size
    if kinds:
        said = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        table.add_row("...", "", str(kinds.total()), f"{rest / 1e3:,.1f}", said, "")
    return table


def draw(runs, path):
    """Draw the loss curves of all modes into one picture."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for i, run in enumerate(runs):
        axes.plot(run.losses, label=NAMES[run.mode], linewidth=5 - i, alpha=0.7)
    axes.set(xlabel="step", ylabel="cross entropy", title="Five runs, one curve")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def show(runs, picture):
    """Print everything and write the picture."""
    console = Console(width=None if Console().is_terminal else 140)
    console.print(table_of_modes(runs))
    for run in runs[1:]:
        console.print(table_of_collectives(run))
    draw(runs, picture)
    console.print(f"Loss curves: {picture}")
