# SPDX-License-Identifier: Apache-2.0
"""Memory as torch.cuda tells of it: what the values of the program take on one device.

Of each value that is computed its largest shard counts, or all of it where it is not cut: what the
device holds that has most. A step counts with what its plan holds while it runs. On the CPU, where
all devices of a process share the host's memory, reserved is what the process has of it. On a GPU
all figures are those of torch.cuda, for all devices that share it.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._world import hardware


def _is_cuda() -> bool:
    return hardware.kind() == "cuda"


def memory_allocated() -> int:
    """Bytes of values of steps that were ended; the steps that are queued run first."""
    if _is_cuda():
        return torch.cuda.memory_allocated()
    _C.wait_for_queued()
    return _C.held_bytes()


def max_memory_allocated() -> int:
    """The most since the start or :func:`reset_peak_memory_stats`."""
    if _is_cuda():
        return torch.cuda.max_memory_allocated()
    _C.wait_for_queued()
    return _C.held_peak()


def memory_reserved() -> int:
    """Bytes that the process has of the host, or torch's allocator of the GPU."""
    return torch.cuda.memory_reserved() if _is_cuda() else hardware.memory()["bytes_used"]


def max_memory_reserved() -> int:
    """The most of them; on the CPU since the process began, whatever was reset."""
    return torch.cuda.max_memory_reserved() if _is_cuda() else hardware.memory()["peak_bytes_used"]


def reset_peak_memory_stats() -> None:
    """From now on :func:`max_memory_allocated` counts from what is held now."""
    _C.wait_for_queued()
    _C.reset_held_peak()
    if _is_cuda():
        torch.cuda.reset_peak_memory_stats()


def memory_stats() -> dict[str, Any]:
    """Those of torch.cuda's statistics that are known."""
    if _is_cuda():
        return torch.cuda.memory_stats()
    return {
        "allocated_bytes.all.current": memory_allocated(),
        "allocated_bytes.all.peak": max_memory_allocated(),
        "reserved_bytes.all.current": memory_reserved(),
        "reserved_bytes.all.peak": max_memory_reserved(),
    }


def mem_get_info() -> tuple[int, int]:
    """Bytes that are free, and all of them."""
    if _is_cuda():
        return torch.cuda.mem_get_info()
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "mem_get_info": mem_get_info,
    "memory_stats": memory_stats,
    "memory_allocated": memory_allocated,
    "memory_reserved": memory_reserved,
    "max_memory_allocated": max_memory_allocated,
    "max_memory_reserved": max_memory_reserved,
    "reset_peak_memory_stats": reset_peak_memory_stats,
    "reset_max_memory_allocated": reset_peak_memory_stats,
}
