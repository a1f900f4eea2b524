# SPDX-License-Identifier: Apache-2.0
"""Devices of processes that are not equally fast, measured."""

import dataclasses

from spmdx._machine.hardware import Hardware
from spmdx._machine.rates import measure_hardware
from spmdx._machine.timing import own_least_seconds
from spmdx._machine.watching import finish_recorded, measuring
from spmdx._world import devices, processes
from spmdx.errors import naming


def measure_devices() -> list[Hardware]:
    """Measure what each device of this program can do; takes seconds.

    Where processes run on unequal machines, or share them unequally, :func:`spmdx.calibrate` tells
    the median of them, and this tells them apart. Of several processes all have to call it, and
    measure at once, as :func:`spmdx.calibrate` does.

    Returns:
        a profile for each device, in the order of their numbers, the same list in all processes.
        Devices of one process share one, as they are run one after the other.

    Raises:
        ShardingError: a step is measured, or nothing runs within :func:`spmdx.plan_only`.
        CommError: another process did not call it, or died.

    Example:
        >>> import spmdx
        >>> found = spmdx.runtime.measure_devices()
        >>> len(found), found[0].flops_per_second["f32"] > 0
        (8, True)
        >>> spmdx.runtime.set_devices(found)
        >>> spmdx.runtime.get_devices()[0]
        'cpu@process 0'
        >>> spmdx.runtime.set_devices([])
    """
    with naming("measure_devices"):
        finish_recorded("device")
    with naming("measure_devices"), measuring("measure_devices"):
        own = measure_hardware(
            f"process {processes.process_index()}", lambda call, _: own_least_seconds(call)
        )
        fields = processes.exchange(dataclasses.asdict(own), "measure_devices")
    found = [Hardware(**told) for told in fields]
    return [hardware for hardware in found for _ in range(devices.own_count())]
