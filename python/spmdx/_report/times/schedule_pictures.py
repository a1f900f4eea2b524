# SPDX-License-Identifier: Apache-2.0
"""Pictures of simulated schedules of pipelines: a lane a rank, a bar an action."""

import importlib
import os
from collections import defaultdict
from typing import TYPE_CHECKING

from spmdx._report.times.timeline import parts_of_pictures, target_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spmdx.pipelines import Simulation, TimedAction

KINDS = {  # colour and meaning
    "F": ("tab:blue", "forward"),
    "B": ("tab:orange", "backward"),
    "I": ("gold", "backward: input"),
    "W": ("tab:green", "backward: weights"),
}
PICTURES = (".png", ".svg", ".pdf")
WIDTH = 12.0  # inches
LEAST_FOR_A_NUMBER = 0.012  # of the width
FAINTEST = 0.45  # of the last chunk's bars, where the first one's are 1


def draw(path: str | os.PathLike | None, simulation: "Simulation") -> "Figure | None":
    """See :meth:`spmdx.pipelines.Simulation.draw`."""
    target = target_of(path, PICTURES) if path is not None else None
    drawn = _figure(simulation)
    if target is not None:
        drawn.savefig(target, dpi=150)
        return None
    importlib.import_module("matplotlib.pyplot")  # teaches a notebook to show figures
    return drawn


def _figure(simulation: "Simulation") -> "Figure":
    Figure, Patch = parts_of_pictures("print(simulation.actions)", "Simulation.draw")
    ranks = len(simulation.idle)
    figure = Figure(figsize=(WIDTH, 1.2 + 0.35 * ranks), layout="constrained")
    axes = figure.add_subplot()
    for (rank, kind, shade), bars in _bars(simulation.actions, ranks).items():
        colour = (KINDS[kind][0], shade)
        place = (rank - 0.4, 0.8)
        axes.broken_barh(bars, place, facecolors=colour, edgecolors="white", linewidth=0.3)
    for a in simulation.actions:
        if a.end - a.start > LEAST_FOR_A_NUMBER * simulation.total:
            middle = (a.start + a.end) / 2
            axes.text(middle, a.rank, str(a.microbatch), ha="center", va="center", size=7)
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set_xlim(0, simulation.total or 1)  # all times may be 0
    axes.set_xlabel("time")
    title = f"total {simulation.total:g}, bubble {simulation.bubble:.1%}"
    axes.set_title(title, fontsize=10, loc="left")
    seen = {action.kind for action in simulation.actions}
    handles = [Patch(color=c, label=text) for kind, (c, text) in KINDS.items() if kind in seen]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def _bars(
    actions: "list[TimedAction]", ranks: int
) -> dict[tuple[int, str, float], list[tuple[float, float]]]:
    """Start and length of bars, by their rank, kind and how opaque their chunk is drawn."""
    last = max(1, max(action.stage for action in actions) // ranks)
    bars = defaultdict(list)
    for action in actions:
        shade = 1 - (1 - FAINTEST) * (action.stage // ranks) / last
        bars[action.rank, action.kind, shade].append((action.start, action.end - action.start))
    return bars
