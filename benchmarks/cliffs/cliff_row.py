# SPDX-License-Identifier: Apache-2.0
"""A row of the table of cliffs: a program to time on the host and on device "spmdx", its goal."""

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable

import spmdx
import torch

COMMON = 2.0  # a step takes at most so many times eager PyTorch's
WARM, FEWEST, MOST = 3, 3, 15  # steps that are not timed; rounds that are
SECONDS = 0.4  # of timed rounds, on one count of devices, once there are FEWEST
EVERYWHERE = (1, 4, 8)
COUNTED = {"syncs": "implicit_syncs", "plans": "plans_compiled", "ops": "ops_recorded"}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a program's tensors lie: on the host, or on device "spmdx", cut over a mesh or not."""

    device: str
    mesh: spmdx.Mesh | None = None

    def put(self, tensor, *spec):
        """A copy of `tensor` here; with a mesh, cut as `spec` says."""
        found = tensor.detach().clone().to(self.device)
        if self.mesh is not None and spec:
            found = spmdx.mark_sharding(
                found, self.mesh, (*spec, *[None] * (found.dim() - len(spec)))
            )
        return found

    def rows(self, *shape, grad=False):
        """Normal numbers, the same everywhere, whose first dim is cut."""
        return self.put(torch.randn(*shape), "x").requires_grad_(grad)

    def whole(self, *shape, grad=False):
        """Normal numbers, the same everywhere, of which each device has all."""
        return self.put(torch.randn(*shape)).requires_grad_(grad)

    def ints(self, high, *shape):
        """Integers below `high`, whose first dim is cut."""
        return self.put(torch.randint(high, shape), "x")

    def model(self, module):
        """A module, moved here."""
        return module.to(self.device)

    def end(self):
        """The end of a step; all that it computes is there."""
        if self.device != "cpu":
            spmdx.sync(wait=True)


@dataclasses.dataclass(frozen=True)
class Goal:
    """A step may take `factor` times eager's plus `plus` seconds. It is judged on the counts of
    devices `judged`, and taken on no others where `only` is set."""

    factor: float = COMMON
    plus: float = 0.0
    judged: tuple[int, ...] = (1,)
    only: bool = False

    def met(self, found):
        """By medians, or by the shortest times: a slow moment of the machine only adds to these."""
        least = (min(found.ours) - self.plus) / min(found.eager)
        return min(found.ratio_less(self.plus), least) <= self.factor

    def text(self):
        return f"{self.factor:g} x" + (f" + {self.plus * 1e3:g} ms" if self.plus else "")


@dataclasses.dataclass(frozen=True)
class Row:
    """`build` takes a Place and returns a step; what a step returns is kept until it has ended.
    `compared`: what it returns is the same on every device. `quick`: tests run it."""

    name: str
    what: str
    build: Callable
    goal: Goal = Goal()
    compared: bool = True
    quick: bool = True


@dataclasses.dataclass(frozen=True)
class Found:
    """Seconds of every round, by the clock and of processors; what a steady step on "spmdx" did."""

    eager: list[float]
    ours: list[float]
    counted: dict[str, int]
    eager_busy: list[float] = dataclasses.field(default_factory=list)
    ours_busy: list[float] = dataclasses.field(default_factory=list)

    def ratio_less(self, plus):
        """The median of paired ratios, `plus` seconds left aside."""
        pairs = zip(self.ours, self.eager, strict=True)
        return statistics.median((ours - plus) / eager for ours, eager in pairs)

    @property
    def ratio(self):
        return self.ratio_less(0.0)

    @property
    def busy(self):
        """The ratio of processors' time, to which a loaded machine does little."""
        pairs = zip(self.ours_busy, self.eager_busy, strict=True)
        return statistics.median(ours / eager for ours, eager in pairs)


def here(devices):
    """A place of so many virtual devices; one has no mesh."""
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",)) if devices > 1 else None
    return Place("spmdx", mesh)


def built(row, place):
    """The step of a row there. The host draws what it is built of."""
    torch.manual_seed(0)
    step = row.build(place)
    place.end()
    return step


def timed(step, place):
    """Seconds of a step until its results are there, by the clock and of processors."""
    busy, began = time.process_time(), time.perf_counter()
    kept = step()
    place.end()
    seconds = time.perf_counter() - began, time.process_time() - busy
    del kept
    return seconds


def measure(row, devices):
    """Eager and spmdx in turn."""
    places = Place("cpu"), here(devices)
    steps = [built(row, place) for place in places]
    for _ in range(WARM):
        spent = sum(timed(step, place)[0] for step, place in zip(steps, places, strict=True))
    rounds = max(FEWEST, min(MOST, int(SECONDS / spent))) if spent < 4 * SECONDS else 1
    gc.collect()
    gc.disable()
    times = [[timed(*each) for each in zip(steps, places, strict=True)] for _ in range(rounds)]
    gc.enable()
    spmdx.debug.reset_counters()
    timed(steps[1], places[1])
    counters = spmdx.debug.counters()
    (eager, eager_busy), (ours, ours_busy) = (
        zip(*each, strict=True) for each in zip(*times, strict=True)
    )
    counted = {name: counters[key] for name, key in COUNTED.items()}
    return Found(list(eager), list(ours), counted, list(eager_busy), list(ours_busy))


class Rows(list):
    """The rows of a room, each beside the function that builds it."""

    def add(self, name, what, build=None, **options):
        """Add a row; without `build`, as a decorator of it."""
        if build is None:
            return lambda function: self.add(name, what, function, **options) or function
        self.append(Row(name, what, build, **options))


def trained(model, optimizer, loss_of):
    """A step of training that returns its loss."""

    def step():
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def graded(loss_of, *leaves):
    """A step that returns gradients."""
    return lambda: torch.autograd.grad(loss_of(), leaves)


def with_sgd(model, loss_of):
    return trained(model, torch.optim.SGD(model.parameters(), lr=1e-3), loss_of)
