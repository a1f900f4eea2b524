# SPDX-License-Identifier: Apache-2.0
"""Calibration: links and devices of this program, measured."""

import os

from spmdx._base.arguments import require_path
from spmdx._machine.links import measure_levels
from spmdx._machine.rates import measure_hardware
from spmdx._machine.sharing import record_ns, shared_processors
from spmdx._machine.topology import Topology
from spmdx._machine.watching import finish_recorded, measuring
from spmdx._world import processes
from spmdx.errors import ShardingError, naming

MOST_DEVICES = 64  # that exchange, in seconds


def calibrate(path: str | os.PathLike | None = None, *, devices: int = 8) -> Topology:
    """Measure the devices of this program and the links between them; takes seconds.

    Products of matrices of several sizes give the rates of a device by dtype and the share of them
    that small products reach, products of few rows the rate of packing, copies of several sizes the
    rate of memory and of caches, and an op on one element the time to start one. Collectives of in-
    process devices are copies. The times of small exchanges among 2 and among ``devices`` devices
    give latency and time a message, a large one the time a byte.

    Of several processes all have to call it. What is recorded runs first. All of them measure at
    once, so that they share cores, memory and links as in a step, and agree on the figures, the
    median of each. Exchanges between them are steps of this program, of which the median counts;
    all-gathers and sums are run as messages and as the backend's own collectives.

    Args:
        path: a file to write the result to; None writes none. Of several processes the first one
            writes it.
        devices: how many devices of one process exchange, from 2 to 64.

    Returns:
        The topology, the same in all processes, which is not in use until :func:`set_topology` is
        called with it.

    Raises:
        ShardingError: no path, fewer than 2 devices, more than 64, a step is measured, or, of
            several processes, nothing runs within :func:`spmdx.plan_only`.
        CommError: another process did not call it, or died.

    Example:
        >>> import spmdx
        >>> spmdx.calibrate().levels[0].picoseconds_per_byte > 0
        True
    """
    with naming("calibrate"):
        if isinstance(devices, bool) or not isinstance(devices, int) or devices < 2:
            raise ShardingError(f"devices is {devices!r}. Expected an int of at least 2. Write 8.")
        if devices > MOST_DEVICES:
            raise ShardingError(
                f"devices is {devices}. Expected at most {MOST_DEVICES}: times grow with their "
                "square, and figures are of a message and of a byte. Write 8."
            )
        if path is not None:
            require_path(path, "links.json")
        is_alone = processes.process_count() == 1
        if not is_alone:
            finish_recorded("exchange")
    with naming("calibrate"), measuring("calibrate"):
        topology = Topology(
            name="in-process, measured" if is_alone else "between processes, measured",
            levels=measure_levels(devices),
            hardware=measure_hardware(),
            **_shared(),
        )
    if path is not None and processes.process_index() == 0:
        topology.save(path)
    return topology


def _shared() -> dict[str, int]:
    """What processes share, if they do: as keywords of a topology."""
    processors = shared_processors()
    return {"processors": processors, "record_ns": record_ns()} if processors else {}
