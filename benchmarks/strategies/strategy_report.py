# SPDX-License-Identifier: Apache-2.0
"""What is said of strategies that ran: tables, correlations of ranks, and regrets."""

import dataclasses
import statistics

import numpy as np
from rich.table import Table
from strategy_links import Link

PREDICTORS = {"listed": "listed_ms", "planned": "planned_ms", "bytes": "mb"}


@dataclasses.dataclass
class Row:
    """A strategy of a search, as it was predicted and measured."""

    strategy: str
    family: str
    is_chosen: bool
    was_planned: bool  # by the search; else its figure is made of the parts' plans
    listed_ms: float = 0.0
    planned_ms: float = 0.0
    mb: float = 0.0  # over the wire, that a device receives
    measured_ms: list = dataclasses.field(default_factory=list)

    @property
    def median_ms(self):
        return statistics.median(self.measured_ms)


def ranks(values):
    """From 0 on; values that are equal share the mean of their ranks."""
    values = np.asarray(values, dtype=float)
    below, equal = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1)
    return below + (equal - 1) / 2


def spearman(a, b):
    """Correlation of ranks."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def summary_of(rows):
    """Correlations by predictor, and regrets: of the chosen one, and of simpler choices."""
    taken = [row.median_ms for row in rows]
    found = {}
    for name, field in PREDICTORS.items():
        found[name] = spearman([getattr(row, field) for row in rows], taken)
    regrets = {"regret": next(row for row in rows if row.is_chosen)}
    regrets["of fewest bytes"] = min(rows, key=lambda row: row.mb)
    copies = [row for row in rows if row.family == "data" and "ZeRO" not in row.strategy]
    if copies:
        regrets["of data parallelism"] = min(copies, key=lambda row: row.listed_ms)
    found |= {name: row.median_ms / min(taken) for name, row in regrets.items()}
    return found | {"of other rounds": regret_of_other_rounds(rows)}


def regret_of_other_rounds(rows):
    """By the one that was best in all rounds but one, in that one: the median over rounds.

    The least of many times that vary is less than any strategy takes.
    """
    chosen = next(row for row in rows if row.is_chosen)
    rounds = range(len(chosen.measured_ms))
    if len(rounds) < 2:
        return chosen.median_ms / min(row.median_ms for row in rows)

    def without(row, left_out):
        return statistics.median(row.measured_ms[r] for r in rounds if r != left_out)

    best = [min(rows, key=lambda row, r=r: without(row, r)) for r in rounds]
    ratios = [chosen.measured_ms[r] / best[r].measured_ms[r] for r in rounds]
    return statistics.median(ratios)


def show_links(console, told):
    links = [Link(**link) for link in told["links"]]
    table = Table("collective", "bytes", "predicted µs", "measured µs", "error")
    for link in links:
        times = f"{link.predicted_us:,.0f}", f"{link.measured_us:,.0f}"
        table.add_row(link.kind, f"{link.bytes:,}", *times, f"{link.error:.0%}")
    console.print(table)
    mean = statistics.mean(link.error for link in links)
    console.print(f"{told['processes']} processes, {told['level']}: mean error {mean:.1%}")


def show_model(console, told, summary):
    rows = [Row(**row) for row in told["rows"]]
    table = Table("strategy", "listed", "planned", "measured ms", "MB")
    for row in rows:
        marks = "chosen" if row.is_chosen else "" if row.was_planned else "estimated"
        figures = row.listed_ms, row.planned_ms, row.median_ms, row.mb
        table.add_row(f"{row.strategy} {marks}", *(f"{figure:,.1f}" for figure in figures))
    console.print(table)
    found = summary_of(rows)
    summary.append((told["processes"], told["model"], found))
    text = ", ".join(f"{name} {figure:.2f}" for name, figure in found.items())
    console.print(f"{told['model']} on {told['processes']} processes: {text}")


def show_summary(console, summary):
    names = list(dict.fromkeys(name for _, _, found in summary for name in found))
    table = Table("processes", "model", *names, title="Correlations and regrets")
    for processes, model, found in summary:
        cells = (f"{found[name]:.2f}" if name in found else "" for name in names)
        table.add_row(str(processes), model, *cells)
    console.print(table)
