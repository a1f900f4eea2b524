# SPDX-License-Identifier: Apache-2.0
"""How good assignments of tasks to devices of several kinds are, by the bound of OR-tools' CP-SAT.

    pip install ortools                                      # which nothing else here needs
    cmake --build build --target spmdx-drawn-tasks
    build/spmdx-drawn-tasks 0 1000 5 > graphs.jsonl          # as the core tests draw them
    python benchmarks/placements.py graphs.jsonl [--seconds 60] [--workers 1] [--json FILE]
                                                 [--of PART PARTS]

Of each graph the schedule of `assign_tasks` either is within 5 % of `least_makespan_ns`, or CP-SAT
is asked for one that is shorter by more: that there is none is a proof that ours is within 5 % of
the shortest, and one that is found is a fault of our search. What is neither by then is undecided.
Prints a line for each graph that CP-SAT was asked about, and a table by shapes of graphs. What the
JSON has proved, or found, holds for other schedules of the same graphs, too: so much of it is asked
again as is undecided after less time. `--of 1 2` takes every second
graph, so that two processes share them. Graphs of up to 10 tasks check the model instead: what
CP-SAT takes at least has to be what `assign_tasks` takes:

    build/spmdx-drawn-tasks 1000 1100 4 7 > few.jsonl        # 100 graphs of 7 tasks
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from ortools.sat.python import cp_model

sys.path.insert(0, str(Path(__file__).parent / "placements"))
from placement_model import Model, graph_of, wrong_with  # noqa: E402

NEAR = 105  # percent of a bound within which a schedule is good
MOST_EXACT = 10  # tasks, of which assign_tasks finds the shortest schedule
VERDICTS = "own bound", "proved", "shorter", "undecided", "optimal", "no memory", "WRONG"


@dataclass
class Answer:
    """What is known of one graph, and how long that took."""

    seed: int
    shape: str
    tasks: int
    devices: int
    ns: int | None
    least: int  # the highest bound that is known
    verdict: str
    seconds: float = 0.0
    shorter: int | None = None  # the makespan that CP-SAT has found


def most_that_is_far(ns):
    """The longest makespan of which `ns` is not within 5 %."""
    return (100 * ns - 1) // NEAR


def solve(model, options, seconds):
    """The solver, and its status as text."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = options.workers
    status = solver.status_name(solver.solve(model.cp))
    if status in ("OPTIMAL", "FEASIBLE"):
        wrong = wrong_with(model.graph, *model.schedule(solver), model.most)
        assert wrong is None, f"CP-SAT's schedule of graph {model.graph.seed}: {wrong}"
    return solver, status


def verdict_on_few(graph, options):
    """Whether the least time of CP-SAT is ours, and its seconds."""
    longest = sum(max(n for n in ns if n is not None) for ns in graph.ns)
    longest += sum(max(map(max, sends)) for _, _, sends in graph.arcs)
    model = Model(graph, longest, minimised=True)
    solver, status = solve(model, options, options.seconds)
    if graph.found is None:
        return "no memory" if status == "INFEASIBLE" else "WRONG", solver.wall_time, None
    if status != "OPTIMAL":
        return "undecided", solver.wall_time, None
    ns = round(solver.objective_value)
    return "optimal" if ns == graph.found else "WRONG", solver.wall_time, ns


def verdict_on_many(graph, options):
    """What CP-SAT says of makespans from which ours is more than 5 % away."""
    model = Model(graph, most_that_is_far(graph.found))
    model.hint()
    solver, status = solve(model, options, options.seconds)
    if status == "INFEASIBLE":
        return "proved", solver.wall_time, None
    if status == "UNKNOWN":
        return "undecided", solver.wall_time, None
    device, start = model.schedule(solver)
    ns = max(
        begin + graph.ns[task][d] for task, (begin, d) in enumerate(zip(start, device, strict=True))
    )
    return "shorter", solver.wall_time, ns


def verdict_by_what_is_known(graph, old, options):
    """That of our bound, or of an earlier answer; None: CP-SAT is to be asked."""
    if 100 * graph.found <= NEAR * graph.least:
        return "own bound", 0.0, None
    if not old:
        return None
    if 100 * graph.found <= NEAR * old.least:
        return "proved", old.seconds, None
    if old.shorter and old.shorter <= most_that_is_far(graph.found):
        return "shorter", old.seconds, old.shorter
    tired = old.verdict == "undecided" and old.seconds > options.seconds * 0.9
    return ("undecided", old.seconds, None) if tired and old.ns == graph.found else None


def ask(graph, old, options):
    """The answer about one graph, of which there may be an old one."""
    if len(graph.ns) <= MOST_EXACT:
        answer = verdict_on_few(graph, options)
    else:
        answer = verdict_by_what_is_known(graph, old, options) or verdict_on_many(graph, options)
    least = max(graph.least, old.least if old else 0)
    if answer[0] == "proved":
        least = max(least, most_that_is_far(graph.found) + 1)
    sizes = len(graph.ns), len(graph.memory)
    return Answer(graph.seed, graph.shape, *sizes, graph.found, least, *answer)


def known(options):
    """Answers of the JSON by seeds."""
    if not options.json or not options.json.exists():
        return {}
    return {a["seed"]: Answer(**a) for a in json.loads(options.json.read_text())}


def print_table(answers):
    """Numbers of graphs by shape and verdict."""
    rows = defaultdict(Counter)
    for answer in answers:
        rows[answer.shape][answer.verdict] += 1
        rows["all"][answer.verdict] += 1
    columns = [v for v in VERDICTS if rows["all"][v]]
    print(f"{'':16}" + "".join(f"{column:>11}" for column in columns))
    for shape in sorted(rows, key=lambda shape: (shape == "all", shape)):
        print(f"{shape:16}" + "".join(f"{rows[shape][column]:11}" for column in columns))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--of", type=int, nargs=2, default=(0, 1), metavar=("PART", "PARTS"))
    options = parser.parse_args()
    answers = known(options)
    part, parts = options.of
    for at, line in enumerate(options.graphs.read_text().splitlines()):
        graph = graph_of(json.loads(line))
        if at % parts != part:
            continue
        answer = answers[graph.seed] = ask(graph, answers.get(graph.seed), options)
        if answer.verdict != "own bound":
            print(*asdict(answer).values(), sep="\t", flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(a) for a in answers.values()]))
    print_table(answers.values())


if __name__ == "__main__":
    main()
