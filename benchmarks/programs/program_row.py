# SPDX-License-Identifier: Apache-2.0
"""A row of the table of programs: what to plan, and the figures derived by hand for it.

Bytes are those one device receives in a ring; `n` is the bytes of the tensor that a device ends
with or begins with, of an exchange those of the whole tensor. What is whole is sliced for free.
"""

import dataclasses
from collections.abc import Callable, Mapping

import spmdx
import torch

F32, I64 = 4, 8  # bytes of a number
SMALL = 32 * 1024  # bytes that no derivation counts: scalars, biases, gradients of norms
MOST_BYTES, MOST_WORK, MOST_PEAK = 1.15, 1.05, 1.15  # of the derived figure, before it is a mark


def gathered(n, g):
    """An all_gather to n bytes over g devices; a reduce_scatter of n bytes costs the same."""
    return n * (g - 1) / g


scattered = gathered


def reduced(n, g):
    """An all_reduce of n bytes over g devices."""
    return 2 * n * (g - 1) / g


def exchanged(n, g):
    """An all_to_all of a tensor of n bytes over g devices: a device has n/g and keeps 1/g of it."""
    return n * (g - 1) / g**2


@dataclasses.dataclass(frozen=True)
class Accepted:
    """Limits in place of the common ones for a known shortcoming: factors of what was derived."""

    why: str
    bytes: float = MOST_BYTES
    work: float = MOST_WORK
    peak: float = MOST_PEAK


COMMON = Accepted("")


@dataclasses.dataclass(frozen=True)
class Row:
    """`run` takes the mesh and returns the report of a steady step. `why` says what the derived
    bytes are made of; `small` ones are not counted. `work` is of all devices together, as a
    multiple of one device's; `peak` is None where it was not derived."""

    name: str
    axes: Mapping[str, int]
    run: Callable
    bytes: float
    why: str
    work: float | None = 1.0
    peak: float | None = None
    small: int = SMALL
    accepted: Accepted = COMMON


@dataclasses.dataclass(frozen=True)
class Found:
    """What the planner makes of a row."""

    bytes: int
    work: float
    peak: int
    step_ns: int
    collectives: list

    def above(self, row, limits=None):
        """Which figures are above `limits`, else above what the row accepts."""
        limits = limits or row.accepted
        marks = {
            "bytes": self.bytes > limits.bytes * row.bytes + row.small,
            "work": row.work is not None and self.work > limits.work * row.work,
            "peak": row.peak is not None and self.peak > limits.peak * row.peak,
        }
        return [name for name, exceeds in marks.items() if exceeds]


def measure(row):
    """Plan a row's program on a mesh of devices that do not exist."""
    devices = 1
    for size in row.axes.values():
        devices *= size
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(devices), tuple(row.axes.values()), tuple(row.axes))
        report = row.run(mesh)
    work = report.flops * devices / report.whole_flops if report.whole_flops else 1.0
    return Found(report.wire_bytes, work, report.peak_bytes, report.step_ns, report.collectives)


# --- how programs are run -------------------------------------------------------------------------


def floats(*shape, dtype=None):
    return torch.empty(*shape, dtype=dtype).to("spmdx")


def integers(*shape):
    return torch.zeros(*shape, dtype=torch.int64).to("spmdx")


def marked(mesh, tensor, *spec):
    """`tensor`, annotated; entries that are not given are whole."""
    spec = (*spec, *[None] * (tensor.dim() - len(spec)))
    return spmdx.mark_sharding(tensor, mesh, spec)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-3)


def trained(model, loss_of, optimizer=adamw, steps=3, after_backward=None):
    """The report of the last step; `loss_of` makes a new batch each time."""
    optimizer = optimizer(model.parameters())
    spmdx.mark_step()
    for _ in range(steps):
        loss_of(model).backward()
        if after_backward:
            after_backward(model)
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
    return spmdx.explain()


def repeated(step, times=2):
    """The report of the last of a few steps; what `step` returns is kept until it was planned."""
    spmdx.mark_step()
    for _ in range(times):
        kept = step()
        spmdx.mark_step()
        del kept
    return spmdx.explain()
