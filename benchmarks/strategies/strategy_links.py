# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes: what the topology says of them, beside what they take."""

from dataclasses import dataclass

import spmdx
import torch

SIZES = [4**k << 10 for k in range(8)]  # bytes of a device's shard, 1 KiB to 16 MiB
ROUNDS = 3  # over all of them, of which the median counts
TURNS = 4  # collectives of a step, each of which waits for the one before
MOST_STEPS, BYTES = 200, 1 << 28  # that are measured of a size: short ones vary by their own length


def all_to_all(value, mesh, whole):
    for specs in (((None, "x"), ("x", None)) * TURNS)[:TURNS]:
        value = spmdx.mark_sharding(value * 1.0, mesh, specs)
    return value


def all_gather(value, mesh, whole):
    for _ in range(TURNS):
        value = spmdx.mark_sharding(value * 1.0, mesh, (None, None))
        value = spmdx.mark_sharding(value * 1.0, mesh, ("x", None))  # a slice, which is free
    return value


def all_reduce(value, mesh, whole):
    for _ in range(TURNS):
        total = spmdx.mark_sharding(value.sum(0), mesh, (None,))
        value = spmdx.mark_sharding(total.expand(whole) * 1.0, mesh, ("x", None))
    return value


def reduce_scatter(value, mesh, whole):
    rows, columns = whole
    for _ in range(TURNS):
        total = spmdx.mark_sharding(value.sum(0), mesh, ("x",))
        value = torch.cat([total.view(rows, columns // rows)] * rows, 1)
        value = spmdx.mark_sharding(value * 1.0, mesh, ("x", None))
    return value


def collective_permute(value, mesh, whole):
    for _ in range(TURNS):
        value = spmdx.mark_sharding(value.roll(1, 0) * 1.0, mesh, ("x", None))
    return value + 1.0  # which reads the last one


KINDS = [all_to_all, all_gather, all_reduce, reduce_scatter, collective_permute]


@dataclass
class Link:
    """A collective of one size, in microseconds."""

    kind: str
    bytes: int  # that a device receives
    predicted_us: float
    measured_us: float

    @property
    def error(self):
        return abs(self.predicted_us / self.measured_us - 1)


def measure(kind, size, steps):
    """One kind of collective on shards of so many bytes, among all processes."""
    count = spmdx.runtime.process_count()
    mesh = spmdx.Mesh(range(count), (count,), ("x",))
    whole = (count, size // 4)
    rows = spmdx.mark_sharding(torch.zeros(whole).to("spmdx"), mesh, ("x", None))
    found = spmdx.profile(lambda: kind(rows, mesh, whole), steps=steps)
    moved = [op for op in found.ops if op.lane == "wire"]
    names = sorted({op.name for op in moved})  # for few bytes gathering may be less to wait for
    predicted = sum(op.predicted_ns for op in moved) / len(moved)
    began, ended = min(op.start_ns for op in moved), max(op.end_ns for op in found.ops)
    computed = sum(
        op.device_ns for op in found.ops if op.lane == "compute" and op.start_ns >= began
    )
    measured = (ended - began - computed) / len(moved)
    return Link(" + ".join(names), moved[0].bytes, predicted / 1e3, measured / 1e3)


def measure_all(rounds):
    steps = {size: max(rounds, min(MOST_STEPS, BYTES // (TURNS * size))) for size in SIZES}
    found = [
        [measure(kind, size, steps[size]) for kind in KINDS for size in SIZES]
        for _ in range(ROUNDS)
    ]
    return [median(links) for links in zip(*found, strict=True)]


def median(links):
    return sorted(links, key=lambda link: link.measured_us)[len(links) // 2]
