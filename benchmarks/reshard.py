# SPDX-License-Identifier: Apache-2.0
"""What the reshard planner moves, over every pair of shardings of a rank-3 tensor on 2×2×2.

    python benchmarks/reshard.py [--shape 64,64,64] [--topology in-process] [--execute]

The naive way makes a tensor whole on every device and slices it; the lower bound is what the
busiest device lacks. Ratios are geometric means over the pairs that move bytes at all. With
--execute every plan also runs, in this process, and every shard is compared with its part of the
tensor.
"""

import argparse
import collections
import itertools
import json
import math
import statistics
import sys

import torch
from rich.console import Console
from rich.table import Table
from spmdx import _C, ShardingError, Topology

AXES = ("x", "y", "z")
# What the figures are held to.
LEAST_SAVED, MOST_ABOVE_BOUND, MOST_MEMORY, MOST_MICROSECONDS = 4.2, 1.0, 1.0, 100.0


def all_specs(rank=3):
    """Every way to cut `rank` dims by three axes: each axis on one dim in any order, or nowhere."""
    specs = set()
    for places in itertools.product(range(rank + 1), repeat=len(AXES)):
        for order in itertools.permutations(range(len(AXES))):
            spec = [[] for _ in range(rank + 1)]
            for axis in order:
                spec[places[axis]].append(AXES[axis])
            specs.add(tuple(tuple(entry) for entry in spec[:rank]))
    return sorted(specs)


def handles(shape):
    """The 106 shardings of a tensor of this shape on the 2×2×2 mesh."""
    mesh = _C.MeshHandle(list(range(8)), [2, 2, 2], list(AXES))
    return [_C.to_sharding([list(e) for e in spec], mesh, shape, "x") for spec in all_specs()]


def shards(whole, handle):
    """The part of `whole` that each device holds."""
    boxes = handle.boxes(list(whole.shape))
    return [whole[tuple(slice(*r) for r in box)].contiguous() for box in boxes]


def wrong_shards(whole, source, target, fields):
    """How many devices do not hold their part after the plan ran."""
    found = _C.run_reshard(shards(whole, source), list(whole.shape), source, target, fields)
    pairs = zip(found, shards(whole, target), strict=True)
    return sum(not torch.equal(one, other) for one, other in pairs)


def held(handle, shape, itemsize=4):
    """Bytes on the device that holds most."""
    return itemsize * max(math.prod(b - a for a, b in box) for box in handle.boxes(shape))


def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else 1.0


def measure(shape, fields, execute=False):
    """{figure: value} over all ordered pairs of different shardings."""
    layouts = handles(shape)
    whole = torch.arange(float(math.prod(shape))).reshape(shape)
    everywhere = _C.to_sharding([[], [], []], layouts[0].mesh, shape, "x")
    memory = {layout: held(layout, shape) for layout in layouts}
    gathered = {layout: _C.missing_bytes("f32", shape, layout, everywhere) for layout in layouts}
    saved, above, peaks, times, kinds, wrong = [], [], [], [], collections.Counter(), 0
    for source, target in itertools.permutations(layouts, 2):
        plan = _C.reshard_plan("f32", shape, source, target, fields)
        bound = _C.missing_bytes("f32", shape, source, target)
        times.append(plan["microseconds"])
        peaks.append(plan["peak_bytes"] / max(memory[source], memory[target]))
        kinds.update(move["kind"] for move in plan["moves"] if move["bytes"])
        if plan["bytes"] and gathered[source]:
            saved.append(gathered[source] / plan["bytes"])
        if plan["bytes"] and bound:
            above.append(plan["bytes"] / bound)
        if execute:
            wrong += wrong_shards(whole, source, target, fields)
    return {
        "pairs": len(times),
        "replicate-then-slice / planned": geometric_mean(saved),
        "planned / lower bound": geometric_mean(above),
        "worst planned / lower bound": max(above, default=1.0),
        "worst peak memory / larger end": max(peaks),
        "median plan time (us)": statistics.median(times),
        "collectives": dict(sorted(kinds.items())),
        "wrong shards": wrong if execute else None,
    }


def missed(figures):
    """The goals that the figures do not reach. They are set for sizes that the axes divide."""
    goals = {
        "replicate-then-slice / planned": lambda v: v >= LEAST_SAVED,
        "planned / lower bound": lambda v: v <= MOST_ABOVE_BOUND + 1e-9,
        "worst peak memory / larger end": lambda v: v <= MOST_MEMORY,
        "median plan time (us)": lambda v: v <= MOST_MICROSECONDS,
        "wrong shards": lambda v: not v,
    }
    return [name for name, holds in goals.items() if not holds(figures[name])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="64,64,64", help="global sizes of the f32 tensor")
    parser.add_argument("--topology", default="in-process", help="a name, or a file")
    parser.add_argument("--execute", action="store_true", help="run every plan")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    shape = [int(size) for size in options.shape.split(",")]
    known = options.topology in _C.topology_names()
    topology = Topology.named(options.topology) if known else Topology.load(options.topology)
    try:
        figures = measure(shape, topology._fields(), options.execute)
    except ShardingError as error:
        sys.exit(str(error))
    table = Table(title=f"f32{shape} on 2×2×2, {topology.name}")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
    even = all(size % 8 == 0 for size in shape)
    failed = missed(figures) if even else [n for n in missed(figures) if n == "wrong shards"]
    if failed:
        sys.exit("missed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
