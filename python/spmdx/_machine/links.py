# SPDX-License-Identifier: Apache-2.0
"""The links between devices, measured: within this process, and between processes."""

import dataclasses

import numpy as np
import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh
from spmdx._machine.exchanges import an_exchange_ns, in_pieces, often, whole
from spmdx._machine.natives import native_shares
from spmdx._machine.timing import agreed, least_seconds
from spmdx._machine.topology import Level, Topology
from spmdx._machine.usage import processor_usage
from spmdx._machine.watching import medians
from spmdx._world import processes

_SMALL = (1 << 9, 1 << 13)  # bytes received, which do not count
_SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
_LEAST_SHARE = 0.1  # of the rate of the size with the highest one: noise has more


def measure_levels(devices: int) -> tuple[Level, ...]:
    """Of this process, of which ``devices`` exchange; of several, those between them as well."""
    if processes.process_count() == 1:
        return (_within(devices),)
    own = processes.device_count() // processes.process_count()
    if own == 1:
        return (_between(own),)
    return (dataclasses.replace(_within(own), devices=own), _between(own))


# --- within a process -----------------------------------------------------------------------------


def _within(devices: int) -> Level:
    """Collectives of in-process devices are copies."""
    pair = int(agreed(_C.time_exchange(2, 1, 2000)))
    small = int(agreed(_C.time_exchange(devices, 1, 1000)))
    columns = max(1, (1 << 20) // devices)  # shards of 4 MiB, pieces in one stretch of memory
    received = 4 * columns * (devices - 1)
    large = _copy_ns(devices, columns)
    return Level(
        latency_ns=pair,
        message_ns=max(0, small - pair) // (devices - 1),
        picoseconds_per_byte=max(1, 1000 * max(0, large - small) // received),
    )


def _copy_ns(devices: int, columns: int) -> int:
    """Least nanoseconds in which shards that are rows become shards that are columns."""
    mesh = _C.MeshHandle(list(range(devices)), [devices], ["x"])
    shape = [devices, devices * columns]
    rows = _C.to_sharding([["x"], []], mesh, shape, "calibrate")
    cut = _C.to_sharding([[], ["x"]], mesh, shape, "calibrate")
    shards = [torch.ones(1, shape[1]) for _ in range(devices)]
    fields = Topology.named("in-process")._fields()
    return int(1e9 * least_seconds(lambda: _C.run_reshard(shards, shape, rows, cut, fields), 10))


# --- between processes ----------------------------------------------------------------------------


def _between(own: int) -> Level:
    """Latency by exchanges of few bytes; what more bytes add to it, by their number."""
    count = processes.process_count()
    first_devices = range(0, own * count, own)
    all_of_them = Mesh(first_devices, (count,), ("x",))
    pairs = Mesh(first_devices[: count // 2 * 2], (count // 2, 2), ("y", "x"))
    sizes = (*_SMALL, *_SIZES)
    times = medians(
        [(in_pieces(all_of_them, size), often(size)) for size in sizes]
        + [(whole(all_of_them, size), often(size)) for size in sizes]
        + [(in_pieces(pairs, size), often(size)) for size in _SMALL],
        an_exchange_ns,
    )
    *kinds, of_pairs = np.split(times, [len(sizes), 2 * len(sizes)])
    start = kinds[0][: len(_SMALL)].mean()
    more = max(0.0, (start - of_pairs.mean()) / (count - 2)) if count > 2 else 0.0
    added = [of_kind[len(_SMALL) :] - of_kind[: len(_SMALL)].mean() for of_kind in kinds]
    a_byte, efficiency = _by_bytes(np.mean(added, axis=0))
    native = native_shares(all_of_them)
    return Level(
        latency_ns=max(0, round(start - more * (count - 1))),
        message_ns=round(more),
        picoseconds_per_byte=a_byte,
        efficiency=efficiency,
        processor_usage=processor_usage(all_of_them),
        native_gathers=native.gathers,
        native_sums=native.sums,
    )


def _by_bytes(times: np.ndarray) -> tuple[int, tuple[tuple[float, float], ...]]:
    """Picoseconds of a byte at best, and shares of that rate, by nanoseconds for each size."""
    sizes = np.array(_SIZES, dtype=float)
    taken = np.maximum.accumulate(np.maximum(times, 1.0))  # more bytes take no less time
    rates = sizes / taken
    rates = np.minimum(rates, rates.min() / _LEAST_SHARE)
    a_byte = max(1, round(1000 / rates.max()))
    shares = np.minimum(1.0, rates * a_byte / 1000)
    return a_byte, tuple(zip(sizes.tolist(), shares.tolist(), strict=True))
