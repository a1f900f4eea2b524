# SPDX-License-Identifier: Apache-2.0
"""The hardware below the devices of this process, and what carries messages from there."""

import os
import resource
import sys

import torch
import torch.distributed as dist

import spmdx._C as _C
from spmdx._world import plugins
from spmdx.errors import ShardingError

TYPES = ("cpu", "cuda")
CARRIERS = ("gloo", "nccl", *plugins.NAMES)


def choose(device_type: str) -> None:
    """Put the shards of this process on hardware of this kind, one of ``TYPES``.

    Raises:
        ShardingError: there is no such kind, or none at hand.
    """
    if device_type not in TYPES:
        raise ShardingError(
            f"{device_type!r} is no kind of hardware. Expected 'cpu' or 'cuda'. Write 'cuda' for "
            "NVIDIA GPUs."
        )
    if device_type == "cpu":
        _C.set_shard_device("cpu")
        return
    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else " (this PyTorch is built without CUDA)"
        raise ShardingError(
            f"'cuda' was asked for, and PyTorch sees no GPU{built}. Expected one. See what "
            "torch.cuda.is_available() says, or write 'cpu'."
        )
    torch.cuda.init()
    # Processes of one machine take its GPUs in turn, as torchrun numbers them.
    rank = int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")))
    index = rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    _C.set_shard_device(f"cuda:{index}", int(os.environ.get("WORLD_SIZE", "1")) > 1)


def choose_by_environment() -> None:
    """What ``SPMDX_DEVICE_TYPE`` says."""
    wanted = os.environ.get("SPMDX_DEVICE_TYPE", "").strip()
    if not wanted:
        return
    try:
        choose(wanted.lower())
    except ShardingError as error:
        raise ShardingError(f"SPMDX_DEVICE_TYPE is {wanted!r}: {error}") from None


def kind() -> str:
    """One of ``TYPES``."""
    return _C.shard_device().split(":")[0]


def wanted_carrier() -> str:
    """What ``SPMDX_COMM`` says; empty where it is not set.

    Raises:
        ShardingError: it names none of ``CARRIERS``, or one that is not there.
    """
    wanted = os.environ.get("SPMDX_COMM", "").strip()
    if wanted not in ("", *CARRIERS):
        raise ShardingError(
            f"SPMDX_COMM is {wanted!r}. Expected {', '.join(map(repr, CARRIERS[:-1]))} or "
            f"{CARRIERS[-1]!r}. Unset it: processes with a GPU each then take nccl, others gloo."
        )
    if wanted in plugins.NAMES:
        plugins.require(wanted)
    return wanted


def identity() -> str:
    """A unique name of the hardware that holds the shards of this process."""
    if kind() == "cuda" and torch.cuda.is_available():
        return str(torch.cuda.get_device_properties(torch.device(_C.shard_device())).uuid)
    return kind()


def carrier(hardware_of_all: list[str]) -> str:
    """What carries messages between processes: ``SPMDX_COMM``, or what the hardware is made for.

    Args:
        hardware_of_all: the :func:`identity` of every process.

    Raises:
        ShardingError: ``SPMDX_COMM`` names something that cannot carry them.
    """
    if wanted_carrier() in plugins.NAMES:
        return wanted_carrier()
    if kind() != "cuda":
        why = "shards lie on the CPU"
    elif not dist.is_nccl_available():
        why = "this PyTorch has no NCCL"
    elif len(set(hardware_of_all)) < len(hardware_of_all):
        why = "processes share a GPU"
    else:
        return wanted_carrier() or "nccl"
    if wanted_carrier() == "nccl":
        raise ShardingError(
            f"SPMDX_COMM is 'nccl', but {why}. Expected SPMDX_DEVICE_TYPE=cuda, a PyTorch with "
            "NCCL and a GPU for each process. Write SPMDX_COMM=gloo."
        )
    return "gloo"


def memory() -> dict[str, int]:
    """Bytes of the host, or of the GPU: ``bytes_used``, ``peak_bytes_used``, ``bytes_limit``."""
    if kind() == "cuda":
        used, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        limit = torch.cuda.mem_get_info()[1]
        return {"bytes_used": used, "peak_bytes_used": peak, "bytes_limit": limit}
    page = os.sysconf("SC_PAGE_SIZE")
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    used = peak
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[1]) * page
    limit = os.sysconf("SC_PHYS_PAGES") * page
    return {"bytes_used": used, "peak_bytes_used": max(peak, used), "bytes_limit": limit}
