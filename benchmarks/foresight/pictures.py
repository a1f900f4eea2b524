# SPDX-License-Identifier: Apache-2.0
"""The page's picture: four strategies on eight devices, each over what it depends on most.

    python benchmarks/foresight/pictures.py

It takes the model and the functions of ``docs/foresight.md`` itself.
"""

import pathlib
import re

from matplotlib.figure import Figure
from spmdx.auto import Strategy

DOCS = pathlib.Path(__file__).parents[2] / "docs"
COLUMNS = dict.fromkeys(("*.q.weight", "*.k.weight", "*.v.weight", "*.up.weight"), ("model", None))
TENSOR = COLUMNS | dict.fromkeys(("*.out.weight", "*.down.weight"), (None, "model"))
SAMPLES, LINKS = (16, 24, 32, 48, 64, 96, 128), (50, 116, 150, 200, 250, 300)
PIECES = (8, 12, 16, 20, 24, 28, 40, 64)


def of_the_page():
    """What the page's blocks define."""
    found = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "foresight.md").read_text(), re.DOTALL):
        if "def efficiency" in block:
            exec(block.rpartition("assert")[0], found)
        elif block.startswith("import"):
            exec(block.partition("\n\n")[0], found)
    return found["efficiency"]


def curves(efficiency):
    """By name: what it depends on, what guides say, and efficiencies."""

    def piped(pieces):
        return efficiency(Strategy(pipe=8, microbatches=pieces, schedule="1f1b"), pieces)

    def hybrid(m):
        shape = {"data": 2, "model": 2, "pipe": 2, "schedule": "1f1b", "plan": TENSOR}
        return efficiency(Strategy(**shape, microbatches=m), 2 * m)

    def tensor(gigabytes):
        strategy = Strategy(model=8, plan=TENSOR)
        return efficiency(strategy, 8, gigabytes_a_second=gigabytes)

    def data(n):
        return efficiency(Strategy(data=8), n)

    return {
        "data 8": ("sequences a device", 0.95, [(n / 8, data(n)) for n in SAMPLES]),
        "tensor 8": ("links, GB/s", 0.62, [(g, tensor(g)) for g in LINKS]),
        "pipeline 8": ("microbatches", 0.80, [(m, piped(m)) for m in PIECES]),
        "2 x 2 x 2": ("microbatches", 0.87, [(m, hybrid(m)) for m in (4, 8, 16, 24, 34, 40)]),
    }


def main():
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    drawn = curves(of_the_page())
    for axes, (name, (over, said, points)) in zip(
        figure.subplots(1, 4, sharey=True), drawn.items(), strict=True
    ):
        print(name, over, [(x, round(y, 3)) for x, y in points])
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3)
        axes.axhline(said, linestyle="--", color="tab:gray", linewidth=1)
        axes.set_title(f"{name}: guides say {said:.0%}", fontsize=9)
        axes.set_xlabel(over, fontsize=8)
        axes.set_ylim(0, 1)
    figure.savefig(DOCS / "assets" / "foresight_strategies.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
