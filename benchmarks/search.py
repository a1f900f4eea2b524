# SPDX-License-Identifier: Apache-2.0
"""How good the search of strategies is: what it chooses, beside the best of all strategies.

    python benchmarks/search.py [--models REGEX] [--devices 4 8 16] [--topologies REGEX]
                                [--cuts] [--jobs 1] [--json FILE] [--plans FOLDER] [--first N]

Every setting is a small model on so many devices of a topology. All strategies of its space are
planned whole, with all their microbatches, and the fastest is the best; then the same under a limit
of memory in which that one does not fit. Times are predicted, and nothing runs. The ratio is that
of what `spmdx.auto.search` chooses to the best; less than 1 says that it cut other dims than the
strategies of the space, to which `--cuts` adds those that cut what Megatron-LM does. What the JSON
has is not done again: all settings take hours. The first ones have all models among them. Plans
that are kept in a folder hold for another search as long as the planner is the same.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import spmdx
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent / "search"))
from search_models import NETS  # noqa: E402
from search_setting import Choice, Outcome, Plans, outcomes  # noqa: E402

DEVICES = 4, 8, 16
NEAR = 1.02  # of the best one's time: within which a choice is good
SEPARATOR = " | "
OF_GPUS = {"nvlink", "infiniband"}


def topologies(devices):
    """Three; nodes have 8 devices, so that InfiniBand makes no difference for fewer."""
    return "in-process", "nvlink", "infiniband" if devices > 8 else "gloo"


def settings(options):
    """Names of models, numbers of devices and topologies, each model in turn with another one."""
    places = [(n, t) for n in options.devices for t in topologies(n)]
    places = [(n, t) for n, t in places if re.search(options.topologies, t)]
    names = [name for name in NETS if re.search(options.models, name)]
    turns = range(len(places))
    cuts = ["cuts"] if options.cuts else []
    return [
        (name, *places[(at + turn) % len(places)], *cuts)
        for turn in turns
        for at, name in enumerate(names)
    ]


def measure(plans, name, devices, topology, cuts=""):
    """Outcomes as dicts, without a limit and with one."""
    torch.set_num_threads(1)
    spmdx.runtime.set_device_count(max(DEVICES))
    net = NETS[name]
    with spmdx.plan_only():
        spmdx.set_hardware("h100-80" if topology in OF_GPUS else None, topology=topology)
        known = Plans(plans and plans / f"{name}-{devices}-{topology}.json")
        batch = net.batch(net.samples)
        found = outcomes(net.program(), batch, devices, cuts=bool(cuts), plans=known)
    return [asdict(outcome) for outcome in found]


def run(wanted, jobs, known, path, plans):
    """Adds what is not known yet to it, and to the file after each setting."""
    left = [each for each in wanted if key(each) not in known]
    if not left:
        return
    spawned = get_context("spawn")
    with ProcessPoolExecutor(jobs, spawned, max_tasks_per_child=1) as pool:
        waiting = {pool.submit(measure, plans, *each): each for each in left}
        for done in as_completed(waiting):
            known[key(waiting[done])] = done.result()
            print(len(known), key(waiting[done]), file=sys.stderr, flush=True)
            if path:
                path.write_text(json.dumps(known, indent=1) + "\n")


def key(setting):
    return SEPARATOR.join(map(str, setting))


def outcome(found):
    chosen, best = (found[k] and Choice(**found[k]) for k in ("chosen", "best"))
    return Outcome(found["limit"], found["strategies"], chosen, best)


def by_model(known):
    """By model its settings and outcomes."""
    rows = defaultdict(list)
    for text, found in known.items():
        name, *where = text.split(SEPARATOR)
        rows[name] += [(" ".join(where), outcome(each)) for each in found]
    return {name: rows[name] for name in NETS if name in rows}


def row(name, pairs):
    ratios = sorted(each.ratio for _, each in pairs)
    near = sum(ratio <= NEAR for ratio in ratios)
    return name, str(len(pairs)), f"{near / len(pairs):.0%}", f"{ratios[-1]:.3f}"


def show(console, known):
    rows = by_model(known)
    table = Table(title="What the search chooses, beside the best of all", title_justify="left")
    table.add_column("model")
    for head in ("settings", f"within {NEAR - 1:.0%}", "worst ratio"):
        table.add_column(head, justify="right")
    for name, pairs in rows.items():
        table.add_row(*row(name, pairs))
    table.add_section()
    table.add_row(*row("all", [pair for pairs in rows.values() for pair in pairs]))
    console.print(table)
    beyond = Table(title=f"Beyond {NEAR - 1:.0%}", title_justify="left")
    for head in ("model", "devices", "limit MB", "ratio", "chosen", "best"):
        beyond.add_column(head, justify="right" if head in ("limit MB", "ratio") else "left")
    for name, pairs in rows.items():
        for where, each in pairs:
            if each.ratio > NEAR:
                beyond.add_row(name, where, limit(each), f"{each.ratio:.3f}", *strategies(each))
    console.print(beyond)


def limit(each):
    return f"{each.limit / 1e6:,.1f}" if each.limit else ""


def strategies(each):
    return [
        f"{c.strategy}: {c.step_ns / 1e6:,.3f} ms (estimated {c.estimated_ns / 1e6:,.3f})"
        if c
        else "none"
        for c in (each.chosen, each.best)
    ]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="", help="a regular expression that names match")
    parser.add_argument("--devices", type=int, nargs="+", choices=DEVICES, default=DEVICES)
    parser.add_argument("--topologies", default="", help="a regular expression likewise")
    parser.add_argument("--cuts", action="store_true", help="also with what Megatron-LM cuts")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--json", type=Path, help="a file of what is known, which is added to")
    parser.add_argument("--plans", type=Path, help="a folder of plans that are known, likewise")
    parser.add_argument("--first", type=int, help="so many settings, not all")
    return parser.parse_args()


def main():
    options = arguments()
    known = {}
    if options.json and options.json.exists():
        known = json.loads(options.json.read_text())
    wanted = settings(options)[: options.first]
    run(wanted, options.jobs, known, options.json, options.plans)
    chosen = {key(each): known[key(each)] for each in wanted}
    show(Console(width=None if sys.stdout.isatty() else 200), chosen)


if __name__ == "__main__":
    main()
