# SPDX-License-Identifier: Apache-2.0
"""Tasks on devices of several kinds as a model of CP-SAT: the problem of csrc/passes/kinds/tasks.h.

A task is run by one device, in one go; a device runs one task at a time and holds the bytes of
those that it runs. A reader starts when what it reads has ended and, from another device, was
sent: the latency, and the bytes by the picoseconds of each. Sends do not wait for each other.
"""

from dataclasses import dataclass

from ortools.sat.python import cp_model


@dataclass
class Graph:
    """What `spmdx-drawn-tasks` prints of one graph, with the times of all sends."""

    seed: int
    shape: str
    ns: list  # by task and device; None: it cannot run there
    bytes: list
    memory: list
    arcs: list  # of the task that is read, its reader, and ns by sender and receiver
    found: int | None  # the makespan of assign_tasks; None: memory holds none
    least: int = 0  # least_makespan_ns
    device: list = ()
    start: list = ()


def send_ns(link, size):
    """Of so many bytes, rounded down as the planner does."""
    latency, picoseconds = link
    return latency + size * picoseconds // 1000


def graph_of(line):
    """The graph that a line of JSON tells."""
    links, arcs = line["links"], {}
    for reader, task in enumerate(line["tasks"]):
        for read, size in task["reads"]:
            arcs[read, reader] = max(arcs.get((read, reader), 0), size)
    devices = range(len(links))
    sends = [
        (*ends, [[0 if d == e else send_ns(links[d][e], size) for e in devices] for d in devices])
        for ends, size in sorted(arcs.items())
    ]
    return Graph(
        line["seed"],
        line["shape"],
        [task["ns"] for task in line["tasks"]],
        [task["bytes"] for task in line["tasks"]],
        line["memory"],
        sends,
        line["ns"],
        line.get("least", 0),
        line.get("device", ()),
        line.get("start", ()),
    )


def heads_and_tails(graph):
    """By task and device: from when on it may start, and what follows its end, by paths alone."""
    devices = range(len(graph.memory))
    heads = [[0 for _ in devices] for _ in graph.ns]
    tails = [[0 for _ in devices] for _ in graph.ns]
    for read, reader, sends in sorted(graph.arcs, key=lambda arc: arc[1]):
        for e in devices:
            ready = min(
                heads[read][d] + graph.ns[read][d] + sends[d][e]
                for d in devices
                if graph.ns[read][d] is not None
            )
            heads[reader][e] = max(heads[reader][e], ready)
    for read, reader, sends in sorted(graph.arcs, key=lambda arc: -arc[0]):
        for d in devices:
            rest = min(
                sends[d][e] + graph.ns[reader][e] + tails[reader][e]
                for e in devices
                if graph.ns[reader][e] is not None
            )
            tails[read][d] = max(tails[read][d], rest)
    return heads, tails


class Model:
    """Assignments that take `most` ns at most; the time is least if `minimised`."""

    def __init__(self, graph, most, minimised=False):
        self.graph, self.most = graph, most
        self.cp = cp_model.CpModel()
        self.devices = range(len(graph.memory))
        self.heads, self.tails = heads_and_tails(graph)
        self.ends = self.cp.new_int_var(0, most, "ends")
        self.starts, self.runs, self.pairs = [], [], []
        for task in range(len(graph.ns)):
            self._add_task(task)
        for arc in graph.arcs:
            self._add_arc(*arc)
        for d in self.devices:
            self._add_device(d)
        if minimised:
            self.cp.minimize(self.ends)

    def _possible(self, task, d):
        ns = self.graph.ns[task][d]
        return ns is not None and self.heads[task][d] + ns + self.tails[task][d] <= self.most

    def _add_task(self, task):
        start = self.cp.new_int_var(0, self.most, f"start {task}")
        runs = {
            d: self.cp.new_bool_var(f"{task} on {d}")
            for d in self.devices
            if self._possible(task, d)
        }
        self.cp.add_exactly_one(runs.values())
        for d, here in runs.items():
            rest = self.graph.ns[task][d] + self.tails[task][d]
            self.cp.add(start >= self.heads[task][d]).only_enforce_if(here)
            self.cp.add(start + rest <= self.ends).only_enforce_if(here)
        self.cp.add(start >= sum(self.heads[task][d] * here for d, here in runs.items()))
        rests = sum(
            (self.graph.ns[task][d] + self.tails[task][d]) * here for d, here in runs.items()
        )
        self.cp.add(start + rests <= self.ends)
        self.starts.append(start)
        self.runs.append(runs)

    def _add_arc(self, read, reader, sends):
        """One bool for each pair of devices that is in time, of which one holds."""
        graph, pairs = self.graph, {}
        for d in self.runs[read]:
            for e in self.runs[reader]:
                wait = graph.ns[read][d] + sends[d][e]
                least = self.heads[read][d] + wait + graph.ns[reader][e] + self.tails[reader][e]
                if least <= self.most:
                    pairs[d, e] = self.cp.new_bool_var(f"{read} on {d}, {reader} on {e}"), wait
        for d, here in self.runs[read].items():
            self.cp.add(sum(pair for (a, _), (pair, _) in pairs.items() if a == d) == here)
        for e, there in self.runs[reader].items():
            self.cp.add(sum(pair for (_, b), (pair, _) in pairs.items() if b == e) == there)
        start, next_start = self.starts[read], self.starts[reader]
        self.pairs += [(pair, read, d, reader, e) for (d, e), (pair, _) in pairs.items()]
        for pair, wait in pairs.values():
            self.cp.add(next_start >= start + wait).only_enforce_if(pair)
        self.cp.add(next_start >= start + sum(wait * pair for pair, wait in pairs.values()))

    def _add_device(self, d):
        graph = self.graph
        tasks = [task for task, runs in enumerate(self.runs) if d in runs]
        self.cp.add_no_overlap(
            self.cp.new_optional_fixed_size_interval_var(
                self.starts[task], graph.ns[task][d], self.runs[task][d], f"{task} {d}"
            )
            for task in tasks
        )
        self.cp.add(
            sum(graph.bytes[task] * self.runs[task][d] for task in tasks) <= graph.memory[d]
        )
        self.cp.add(sum(graph.ns[task][d] * self.runs[task][d] for task in tasks) <= self.ends)

    def hint(self):
        """Says what `assign_tasks` has found, where it is possible here."""
        device = self.graph.device
        for pair, read, d, reader, e in self.pairs:
            self.cp.add_hint(pair, (d, e) == (device[read], device[reader]))
        for task, runs in enumerate(self.runs):
            self.cp.add_hint(self.starts[task], min(self.graph.start[task], self.most))
            for d, here in runs.items():
                self.cp.add_hint(here, d == device[task])

    def schedule(self, solver):
        """The device and the start of each task."""
        device = [next(d for d, here in runs.items() if solver.value(here)) for runs in self.runs]
        return device, [solver.value(start) for start in self.starts]


def wrong_with(graph, device, start, most):
    """What is wrong with a schedule that is to take `most` ns at most; None: nothing."""
    ns = [graph.ns[task][d] for task, d in enumerate(device)]
    ends = [begin + length for begin, length in zip(start, ns, strict=True)]
    if max(ends) > most:
        return "it takes longer"
    for read, reader, sends in graph.arcs:
        if start[reader] < ends[read] + sends[device[read]][device[reader]]:
            return f"task {reader} does not wait for task {read}"
    for d, room in enumerate(graph.memory):
        mine = sorted((start[t], ends[t], t) for t in range(len(ns)) if device[t] == d)
        if any(a[1] > b[0] for a, b in zip(mine, mine[1:], strict=False)):
            return f"tasks overlap on device {d}"
        if sum(graph.bytes[t] for _, _, t in mine) > room:
            return f"device {d} is too full"
    return None
