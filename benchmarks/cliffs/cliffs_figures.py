# SPDX-License-Identifier: Apache-2.0
"""Figures that are no ratio of steady steps: first steps, planning, resident memory.

    python benchmarks/cliffs/cliffs_figures.py NAME

prints one as JSON. Each is taken in a process of its own, in which nothing ran before: so spmdx is
imported where it is needed.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

MB = 1e6
PLANNED = 50.0  # microseconds a node
PLANS = 322.1  # megabytes: the budget of plans that are kept, and a fifth for the heap around them


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number, taken by `take`, which may be `most`."""

    name: str
    what: str
    unit: str
    most: float
    take: Callable


def resident():
    """Megabytes that the process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


def first_op():
    """Seconds from `import spmdx` to the first value, less those of eager's first op."""
    began = time.perf_counter()
    (torch.ones(4) + 1).sum().item()
    eager = time.perf_counter() - began
    began = time.perf_counter()
    import spmdx  # noqa: F401

    (torch.ones(4).to("spmdx") + 1).sum().item()
    return time.perf_counter() - began - eager


def first_training_step():
    """Milliseconds of the first step of a small model, less those of eager's."""
    import spmdx

    (torch.ones(4).to("spmdx") + 1).sum().item()
    spent = {}
    for device in ("cpu", "spmdx"):
        model, x = nn.Linear(64, 64).to(device), torch.randn(64, 64).to(device)
        began = time.perf_counter()
        optimizer = torch.optim.AdamW(model.parameters())
        model(x).square().mean().backward()
        optimizer.step()
        spmdx.sync(wait=True)
        spent[device] = time.perf_counter() - began
    return (spent["spmdx"] - spent["cpu"]) * 1e3


# --- planning -------------------------------------------------------------------------------------


def planned(record):
    """Microseconds a node of the first mark_step, before anything runs."""
    import spmdx

    spmdx.runtime.set_device_count(8)
    with spmdx.plan_only():
        spmdx.debug.reset_counters()
        kept = record(spmdx.Mesh(range(8), (8,), ("x",)))
        began = time.perf_counter()
        spmdx.mark_step()
        seconds = time.perf_counter() - began
        nodes = spmdx.debug.counters()["ops_recorded"]
        del kept
    return seconds / nodes * 1e6


def cut(mesh, tensor, *spec):
    """A tensor on the device, cut as `spec` says."""
    import spmdx

    return spmdx.mark_sharding(tensor.to("spmdx"), mesh, spec)


def readers(count):
    """Rows of one cut value, each read by itself."""

    def record(mesh):
        x = cut(mesh, torch.randn(count, 8), "x", None)
        return torch.stack([x[i].sin() for i in range(count)])

    return lambda: planned(record)


def uses(count, train=False):
    """One cut weight, used again and again."""

    def record(mesh):
        weight = cut(mesh, torch.randn(8, 8), "x", None).requires_grad_(train)
        x = cut(mesh, torch.randn(8, 8), "x", None)
        for _ in range(count):
            x = torch.relu(x @ weight)
        if train:
            x.sum().backward()
        return x, weight.grad

    return lambda: planned(record)


def cell_step(mesh):
    """A loss of an LSTMCell over 100 steps, its weights cut, and its gradients."""
    cell, x = nn.LSTMCell(32, 32).to("spmdx"), cut(mesh, torch.randn(100, 8, 32), None, "x", None)
    for weight in (cell.weight_hh, cell.weight_ih):
        cut(mesh, weight, "x", None)
    state, loss = None, 0.0
    for t in range(100):
        state = cell(x[t], state)
        loss = loss + state[0].square().mean()
    loss.backward()
    return loss, cell


# --- memory ---------------------------------------------------------------------------------------


def held_uploads():
    """Megabytes that remain after 300 batches of 4 MB, evaluated and not read."""
    import spmdx  # noqa: F401

    model = nn.Linear(1024, 8).to("spmdx")
    model(torch.randn(1024, 1024).to("spmdx")).sum().item()
    before = resident()
    with torch.no_grad():
        for _ in range(300):
            model(torch.randn(1024, 1024).to("spmdx"))
    return resident() - before


def unmarked_growth():
    """Kilobytes a step that a training loop grows by, which reads nothing and marks nothing."""
    import spmdx  # noqa: F401

    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters())

    def steps(count):
        for _ in range(count):
            model(torch.randn(64, 64).to("spmdx")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return resident()

    before = steps(1200)  # by then a trace was cut, and its plan is made
    return (steps(1200) - before) * 1e3 / 1200


def held_plans():
    """Megabytes that 301 batch sizes of a model of 100 layers leave behind."""
    import spmdx

    layers = [(nn.Linear(64, 64), nn.ReLU()) for _ in range(100)]
    model = nn.Sequential(*[part for layer in layers for part in layer]).to("spmdx")

    optimizer = torch.optim.SGD(model.parameters())

    def step(rows):
        model(torch.zeros(rows, 64).to("spmdx")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.sync(wait=True)

    step(1)
    before = resident()
    for rows in range(1, 302):
        step(rows)
    return resident() - before


def held_by_offsets():
    """Megabytes that writes at 300 new places of a tensor of 2 MB leave behind."""
    import spmdx

    y = torch.randn(2048, 256).to("spmdx")

    def write(start):
        for k in range(start, start + 300):
            y[k] = y[1800]
            spmdx.sync(wait=True)
        return resident()

    before = write(0)
    return write(300) - before


def plans_of_offsets():
    """Plans that 100 offsets of a resident data set make."""
    import spmdx

    data, model = torch.randn(4000, 64).to("spmdx"), nn.Linear(64, 64).to("spmdx")
    optimizer = torch.optim.SGD(model.parameters())
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    for k in range(0, 3200, 32):
        F.relu(model(data[k : k + 32])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.sync(wait=True)
    return spmdx.debug.counters()["plans_compiled"]


ROWS = [
    Figure(
        "the first op of a process",
        "import spmdx, upload, sum, item, over eager",
        "s",
        0.1,
        first_op,
    ),
    Figure(
        "the first training step",
        "a linear layer and AdamW, over eager",
        "ms",
        100.0,
        first_training_step,
    ),
    Figure("planning: 2,000 rows of a cut value", "8 devices", "µs a node", PLANNED, readers(2000)),
    Figure(
        "planning: 16,000 rows of a cut value", "8 devices", "µs a node", PLANNED, readers(16000)
    ),
    Figure("planning: 500 uses of a cut weight", "8 devices", "µs a node", PLANNED, uses(500)),
    Figure("planning: 500 uses, trained", "8 devices", "µs a node", PLANNED, uses(500, True)),
    Figure(
        "planning: LSTMCell, weights cut",
        "100 steps, 8 devices",
        "µs a node",
        PLANNED,
        lambda: planned(cell_step),
    ),
    Figure("uploads that nobody reads", "300 of 4 MB, no mark_step", "MB held", 64.0, held_uploads),
    Figure("an unmarked training loop", "steps 1,200 to 2,400", "kB a step", 1.0, unmarked_growth),
    Figure("plans of 301 batch sizes", "100 layers of 64, trained", "MB held", PLANS, held_plans),
    Figure("y[k] = y[j] at 300 places", "f32[2048, 256]", "MB held", 64.0, held_by_offsets),
    Figure("plans of 100 offsets", "X[k:k+32]", "plans", 1.0, plans_of_offsets),
]
FIGURES = {row.name: row for row in ROWS}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(FIGURES[sys.argv[1]].take()))
