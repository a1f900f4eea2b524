# SPDX-License-Identifier: Apache-2.0
"""torch_xla.runtime: what a program runs on, under torch_xla's names.

Where a name says "runtime" it means the devices of meshes; else the one logical device.
"""

import os
from typing import Any

import spmdx._C as _C
from spmdx import debug
from spmdx import runtime as own
from spmdx._xla import marking
from spmdx._xla.device.absent import absent, refuse
from spmdx._xla.mesh import count_devices_with

_DEVICE, _SPMD = "PJRT_DEVICE", "XLA_USE_SPMD"


def use_spmd(auto: bool | None = False) -> None:
    """Let tensors be marked.

    Args:
        auto: must be false.

    Raises:
        NotImplementedError: ``auto`` is true: nothing chooses shardings where nobody has marked.
    """
    if auto:
        refuse(
            "use_spmd(auto=True)",
            "Mark some tensors: the others follow. For a whole module, give auto_policy to "
            "distribute_module.",
        )
    os.environ[_SPMD] = "1"


def is_spmd() -> bool:
    """Whether :func:`use_spmd` was called."""
    return marking.is_spmd()


def device_type() -> str | None:
    """The kind of hardware: what ``PJRT_DEVICE`` says, or ``"CPU"`` or ``"CUDA"``."""
    return os.environ.get(_DEVICE) or own.device_type()


def set_device_type(pjrt_device: str) -> None:
    """Choose the hardware, before the first tensor.

    Args:
        pjrt_device: ``"CPU"``, or ``"CUDA"``.

    Raises:
        RuntimeError: another kind, or hardware that is not there.
    """
    kind = "CUDA" if pjrt_device == "GPU" else pjrt_device
    if kind not in ("CPU", "CUDA"):
        raise RuntimeError(
            f"PJRT_DEVICE is {pjrt_device!r}, which spmdx does not run on. Expected CPU or CUDA. "
            "Set PJRT_DEVICE=CPU, or leave it out."
        )
    if kind != own.device_type():
        try:
            own.set_device_type(kind)
        except ValueError as error:
            raise RuntimeError(str(error)) from error
    os.environ[_DEVICE] = kind


def is_bf16_supported() -> bool:
    """Whether bfloat16 can be computed with: always."""
    return True


def local_process_count() -> int:
    """The number of processes on this machine."""
    return own.local_process_count()


def global_device_count() -> int:
    """The number of logical devices: 1."""
    return 1


def world_size() -> int:
    """The number of logical devices: 1."""
    return 1


def local_device_count() -> int:
    """The number of logical devices: 1."""
    return 1


def addressable_device_count() -> int:
    """The number of logical devices: 1."""
    return 1


def global_ordinal() -> int:
    """The index of the logical device: 0."""
    return 0


def local_ordinal() -> int:
    """The index of the logical device: 0."""
    return 0


def process_index() -> int:
    """The index of this process, from 0."""
    return own.process_index()


def process_count() -> int:
    """The number of processes that run the program together."""
    return own.process_count()


def host_index() -> int:
    """The index of this machine; every process counts as one."""
    return own.process_index()


def global_runtime_device_count() -> int:
    """The number of devices of all processes.

    Returns:
        A number.

    Example:
        >>> from spmdx.torch_xla import runtime as xr
        >>> xr.global_runtime_device_count()
        8
    """
    return own.global_runtime_device_count()


def addressable_runtime_device_count() -> int:
    """The number of devices of this process."""
    return own.addressable_runtime_device_count()


def global_runtime_device_attributes() -> list[dict[str, object]]:
    """For each device its name."""
    count = global_runtime_device_count()
    return [{"name": f"{device_type()}:{i}"} for i in range(count)]


def runtime_device_attributes(device: str) -> dict[str, object]:
    """The name of a device, as its only attribute.

    Args:
        device: as ``"CPU:0"``.

    Returns:
        A dict.
    """
    return {"name": device}


def get_master_ip() -> str:
    """The address of process 0."""
    return os.environ.get("MASTER_ADDR", "localhost")


def get_num_cached_compilation_graph() -> int:
    """The number of plans that are kept."""
    return debug.counters()["plans_kept"]


def clear_computation_cache() -> None:
    """Forget all plans."""
    _C.clear_cache()


count_devices_with(lambda: global_runtime_device_count())

__getattr__: Any = absent(
    "torch_xla.runtime",
    {"initialize_cache": "Plans are made in each process and are not kept in files."},
)
