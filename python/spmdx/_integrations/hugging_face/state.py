# SPDX-License-Identifier: Apache-2.0
"""The state that accelerate keeps of a process, set to device "spmdx"."""

import os
from typing import Any

from accelerate.state import AcceleratorState, PartialState

from spmdx._base.own_devices import NAMES
from spmdx._world import processes

# What accelerate reads to start a process group, and to choose a device, of its own.
_OF_LAUNCHERS = ("LOCAL_RANK",)


def start() -> PartialState:
    """The state of this process: device "spmdx", and one program that all processes run.

    To accelerate there is one process, which has the whole batch: all tensors are global. Only who
    writes files and prints is told by the index of the process.
    """
    known = PartialState._shared_state
    if known and known["device"].type in NAMES:
        return PartialState()
    AcceleratorState._reset_state(reset_partial_state=True)
    before = dict(os.environ)
    for name in _OF_LAUNCHERS:
        os.environ.pop(name, None)
    os.environ["ACCELERATE_TORCH_DEVICE"] = "spmdx"
    try:
        state = PartialState()
    finally:
        for name in (*_OF_LAUNCHERS, "ACCELERATE_TORCH_DEVICE"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
    state.process_index = processes.process_index()
    state.local_process_index = processes.process_index() % processes.local_count()
    return state


def own(state: Any) -> Any:
    """The same state, which no longer changes when another trainer resets the shared one."""
    state.__dict__ = dict(state.__dict__)
    return state
