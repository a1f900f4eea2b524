# SPDX-License-Identifier: Apache-2.0
"""What spmdx runs on: devices, processes, memory."""

import warnings

import spmdx._C as _C
from spmdx._base import logs
from spmdx._kinds.devices import get_devices as get_devices
from spmdx._kinds.devices import kinds
from spmdx._kinds.devices import set_devices as set_devices
from spmdx._kinds.measured import measure_devices as measure_devices
from spmdx._world import devices, hardware, processes
from spmdx.errors import ShardingError, naming


def set_device_count(n: int) -> None:
    """Say how many virtual devices each process plays, before the first mesh is made.

    Args:
        n: the number of devices, at least 1. It wins over ``SPMDX_NUM_DEVICES``.

    Raises:
        ShardingError: ``n`` is no positive int, or meshes exist for another number of devices.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.set_device_count(8)
        >>> spmdx.runtime.global_runtime_device_count()
        8
    """
    named = len(kinds())
    if named and n != named // processes.process_count():
        with naming("set_device_count"):
            raise ShardingError(
                f"set_devices named the kinds of {named} devices, and this is {n!r} for each "
                "process. Expected the same number. Call spmdx.runtime.set_devices([]) first."
            )
    devices.choose_count(n)


def global_runtime_device_count() -> int:
    """The number of devices of all processes.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.global_runtime_device_count()
        8
    """
    return processes.device_count()


def addressable_runtime_device_count() -> int:
    """The number of devices of this process.

    Returns:
        What :func:`set_device_count` or ``SPMDX_NUM_DEVICES`` said; 1 if neither did.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.addressable_runtime_device_count()
        8
    """
    return devices.own_count()


def local_process_count() -> int:
    """The number of processes on this machine that run the program."""
    return processes.local_count()


def process_index() -> int:
    """The index of this process, from 0.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.process_index(), spmdx.runtime.process_count()
        (0, 1)
    """
    return processes.process_index()


def process_count() -> int:
    """The number of processes that run the program together."""
    return processes.process_count()


def recover() -> None:
    """Go on after an error; every process has to call it, whether it had one of its own or not.

    When a step fails in one process, or processes run different programs, all of them raise, and
    every later step raises the same error. A program that catches it and wants to go on calls
    this; the others, who may wait for this process, then raise too. It returns when every process
    has called it. Tensors are as the last step that ran left them: what failed is undone, what was
    recorded and had not begun is dropped. An error that the program has not seen is a warning.

    Raises:
        CommError: a process has ended, or did not call it in time; or a step ran to its end in
            some processes only, or had begun to overwrite tensors: load a checkpoint then.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.recover()
    """
    unseen = _C.recover(processes.cause_of_recovery())
    logs.running.info("recovered: what had failed is undone")
    if unseen:
        warnings.warn(f"recover() undid a step that had failed: {unseen}", stacklevel=2)


def device_type() -> str:
    """The kind of hardware below the devices: ``"CPU"`` or ``"CUDA"``.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.device_type()
        'CPU'
    """
    return hardware.kind().upper()


def set_device_type(device_type: str) -> None:
    """Choose the hardware below the devices of this process, before the first tensor.

    On ``"CUDA"`` a process uses one GPU, the one that ``LOCAL_RANK`` names if there are several,
    and all its devices share it.

    Args:
        device_type: ``"CPU"`` or ``"CUDA"``, in any case. It wins over ``SPMDX_DEVICE_TYPE``.

    Raises:
        ShardingError: there is no such hardware here, or tensors lie elsewhere already.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.set_device_type("CPU")
    """
    with naming("set_device_type"):
        hardware.choose(str(device_type).lower())


def use_spmd(auto: bool = False) -> None:
    """Do nothing: spmdx has no mode to enter. It is here for programs written for PyTorch/XLA.

    Args:
        auto: must be false.

    Raises:
        ShardingError: ``auto`` is true: nothing chooses shardings where nobody has annotated.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.use_spmd()
        >>> spmdx.runtime.is_spmd()
        True
    """
    if auto:
        with naming("use_spmd"):
            raise ShardingError(
                "auto=True is asked for, and nothing here chooses a strategy for a whole program. "
                "Expected annotations of some tensors, from which the others follow. Call "
                "spmdx.fully_shard(model) or spmdx.mark_sharding(tensor, mesh, spec)."
            )


def is_spmd() -> bool:
    """Whether tensors can be sharded: always true."""
    return True


def memory_info() -> dict[str, int]:
    """The memory of the host, or of the GPU, which all devices of a process share.

    Returns:
        ``bytes_used`` and ``peak_bytes_used`` of this process, ``bytes_limit`` of the machine or
        the GPU.

    Example:
        >>> import spmdx
        >>> info = spmdx.runtime.memory_info()
        >>> 0 < info["bytes_used"] <= info["bytes_limit"]
        True
    """
    return hardware.memory()


__all__ = [
    "addressable_runtime_device_count",
    "device_type",
    "get_devices",
    "global_runtime_device_count",
    "is_spmd",
    "local_process_count",
    "memory_info",
    "process_count",
    "process_index",
    "recover",
    "set_device_count",
    "set_device_type",
    "set_devices",
    "use_spmd",
]
