# SPDX-License-Identifier: Apache-2.0
"""Calibration: links and devices of this process, measured."""

import os
import time
from collections.abc import Callable

import torch

import spmdx._C as _C
from spmdx._base.arguments import require_path
from spmdx._machine.hardware import Hardware
from spmdx._machine.topology import Level, Topology
from spmdx.errors import ShardingError, naming

_SIDES = (32, 64, 128, 256, 512, 1024)  # of square matrices
_DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
_WITHIN_SECONDS = 0.05  # longer products of a dtype are left out


def _least_seconds(call: Callable[[], object], repeats: int) -> float:
    least = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - began)
    return least


def _exchange_ns(devices: int, columns: int) -> int:
    """Least nanoseconds in which shards that are rows become shards that are columns."""
    mesh = _C.MeshHandle(list(range(devices)), [devices], ["x"])
    shape = [devices, devices * columns]
    rows = _C.to_sharding([["x"], []], mesh, shape, "calibrate")
    cut = _C.to_sharding([[], ["x"]], mesh, shape, "calibrate")
    shards = [torch.ones(1, shape[1]) for _ in range(devices)]
    fields = Topology.named("in-process")._fields()
    return int(1e9 * _least_seconds(lambda: _C.run_reshard(shards, shape, rows, cut, fields), 10))


def calibrate(path: str | os.PathLike | None = None, *, devices: int = 8) -> Topology:
    """Measure the virtual devices of this process and the links between them; takes seconds.

    Collectives of in-process devices are copies. The times of small exchanges among 2 and among
    ``devices`` devices give latency and time a message, a large one the time a byte. Products of
    matrices of several sizes give the rates of a device by dtype and the share of them that small
    products reach, copies the rate of memory, and an op on one element the time to start one.

    Args:
        path: a file to write the result to; None writes none.
        devices: how many devices exchange, at least 2.

    Returns:
        The topology, which is not in use until :func:`set_topology` is called with it.

    Raises:
        ShardingError: no path, or fewer than 2 devices.

    Example:
        >>> import spmdx
        >>> spmdx.calibrate().levels[0].picoseconds_per_byte > 0
        True
    """
    with naming("calibrate"):
        if isinstance(devices, bool) or not isinstance(devices, int) or devices < 2:
            raise ShardingError(f"devices is {devices!r}. Expected an int of at least 2. Write 8.")
        if path is not None:
            require_path(path, "links.json")
    pair = _C.time_exchange(2, 1, 2000)
    small = _C.time_exchange(devices, 1, 1000)
    columns = max(1, (1 << 20) // devices)  # shards of 4 MiB, pieces in one stretch of memory
    received = 4 * columns * (devices - 1)
    large = _exchange_ns(devices, columns)
    level = Level(
        latency_ns=pair,
        message_ns=max(0, small - pair) // (devices - 1),
        picoseconds_per_byte=max(1, 1000 * max(0, large - small) // received),
    )
    topology = Topology(
        name="in-process, measured",
        levels=(level,),
        hardware=_measure_hardware(),
    )
    if path is not None:
        topology.save(path)
    return topology


def _measure_hardware() -> Hardware:
    tiny, copied = torch.ones(1), torch.ones(1 << 22)
    launch_ns = int(1e9 * _least_seconds(lambda: tiny + tiny, 1000))
    copy = _least_seconds(copied.clone, 10)
    rates = {name: _rates_by_flops(dtype, launch_ns) for name, dtype in _DTYPES.items()}
    peaks = {name: max(found.values()) for name, found in rates.items()}
    f32 = {flops: rate / peaks["f32"] for flops, rate in rates["f32"].items()}
    return Hardware(
        name="this machine, measured",
        flops_per_second=peaks,
        memory_bytes_per_second=2 * copied.nbytes / copy,
        product_efficiency=tuple(_never_less_time(f32).items()),
        launch_ns=launch_ns,
        sources=dict.fromkeys(_MEASURED, "spmdx.calibrate"),
    )


def _rates_by_flops(dtype: torch.dtype, launch_ns: int) -> dict[float, float]:
    """Operations a second of products of so many operations, without what starts them."""
    found: dict[float, float] = {}
    for side in _SIDES:
        matrix = torch.ones(side, side, dtype=dtype)
        seconds = _least_seconds(lambda m=matrix: m @ m, 10)  # type: ignore[misc]
        found[2.0 * side**3] = 2 * side**3 / max(seconds - 1e-9 * launch_ns, 0.1 * seconds)
        if seconds > _WITHIN_SECONDS:
            break
    return found


def _never_less_time(shares: dict[float, float]) -> dict[float, float]:
    """Shares of which none grows faster than the work, as noise has it."""
    kept: dict[float, float] = {}
    most = float("inf")  # share / size of the point before
    for flops, share in shares.items():
        share = min(share, most * flops) if kept else share
        kept[flops] = share
        most = share / flops
    return kept


_MEASURED = ("flops_per_second", "memory_bytes_per_second", "product_efficiency", "launch_ns")
