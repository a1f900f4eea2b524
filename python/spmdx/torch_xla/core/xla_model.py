# SPDX-License-Identifier: Apache-2.0
"""torch_xla.core.xla_model: devices, steps, saving, and collectives of one logical device."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import spmdx._C as _C
from spmdx import runtime as own
from spmdx._xla import state
from spmdx._xla.collectives import (
    NO_REGION,
    all_gather,
    all_reduce,
    mesh_reduce,
    reduce_gradients,
    rendezvous,
    require_no_groups,
)
from spmdx._xla.device import steps
from spmdx._xla.device.absent import absent
from spmdx._xla.device.rate import RateTracker
from spmdx._xla.generators import fork_rng, get_rng_state, set_rng_state
from spmdx._xla.sending import send_cpu_data_to_device
from spmdx.torch_xla import runtime, torch_xla

__all__ = [
    "RateTracker",
    "all_gather",
    "all_reduce",
    "fork_rng",
    "get_rng_state",
    "mesh_reduce",
    "optimizer_step",
    "reduce_gradients",
    "rendezvous",
    "save",
    "send_cpu_data_to_device",
    "set_rng_state",
    "xla_device",
]

REDUCE_SUM, REDUCE_MUL, REDUCE_AND = "sum", "mul", "and"
REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "or", "min", "max"


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the device.

    Args:
        tensor: of any device.

    Returns:
        True or False.
    """
    return _C.is_lazy(state.unwrapped(tensor))


def get_xla_supported_devices(max_devices: int | None = None) -> list[str]:
    """The names of the logical devices: one.

    Args:
        max_devices: how many names at most.

    Returns:
        A list of names.
    """
    return ["xla:0"][:max_devices]


def get_local_ordinal() -> int:
    """The index of the logical device: 0."""
    return 0


def get_ordinal() -> int:
    """The index of the logical device: 0."""
    return 0


def xrt_world_size() -> int:
    """The number of logical devices: 1."""
    return 1


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this process is the first: of its machine, or of all.

    Args:
        local: of its machine. Where one process a machine runs, each is the first of its own.

    Returns:
        True or False.
    """
    return own.process_index() % (own.local_process_count() if local else sys.maxsize) == 0


def master_print(*args: Any, fd: Any = None, local: bool = False, flush: bool = False) -> None:
    """Print in the first process only.

    Args:
        *args: what ``print`` is given.
        fd: where to; None means the standard output.
        local: whether the first process of each machine prints.
        flush: whether to flush.
    """
    if is_master_ordinal(local=local):
        print(*args, file=fd, flush=flush)


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The logical device ``xla:0``.

    Args:
        n: 0 or None.
        devkind: the kind of hardware, which must be what there is.

    Returns:
        A ``torch.device``.

    Raises:
        RuntimeError: another kind of hardware.
    """
    if devkind is not None and devkind != runtime.device_type():
        raise RuntimeError(f"devkind is {devkind!r}. Expected {runtime.device_type()!r}.")
    return torch_xla.device(n)


def xla_real_devices(devices: Sequence[Any] | None = None) -> list[str]:
    """The hardware below logical devices, by name.

    Args:
        devices: logical devices; None means all.

    Returns:
        One name for each.
    """
    return torch_xla.real_devices() * (1 if devices is None else len(devices))


def xla_device_hw(device: Any) -> str:
    """The kind of hardware below a device; of a device of another kind that kind.

    Args:
        device: a device, or its name.

    Returns:
        ``"CPU"`` or ``"CUDA"``.
    """
    kind = torch.device(device).type
    return str(runtime.device_type()) if kind in ("xla", "spmdx") else kind.upper()


def xla_device_kind(device: Any = None) -> str:
    """The kind of hardware below the device.

    Args:
        device: kept for programs that give it.

    Returns:
        ``"CPU"`` or ``"CUDA"``.
    """
    return str(runtime.device_type())


def xla_replication_devices(local_devices: Sequence[Any]) -> list[str]:
    """The hardware below logical devices, by name.

    Args:
        local_devices: logical devices.

    Returns:
        One name for each.
    """
    return xla_real_devices(local_devices)


def add_step_closure(
    closure: Callable[..., Any], args: tuple = (), run_async: bool = False
) -> None:
    """Let ``closure`` be called when the step has ended.

    Args:
        closure: the function.
        args: its arguments.
        run_async: whether it is called in a thread of its own.
    """
    steps.add_closure(closure, args, run_async)


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """End the step; see ``torch_xla.sync``.

    Args:
        wait: whether to wait until it has run.
        reset_scope: kept for programs that give it.
    """
    torch_xla.sync(wait, reset_scope)


def wait_device_ops(devices: Sequence[Any] = ()) -> None:
    """Wait until all steps that have ended have run.

    Args:
        devices: kept for programs that give them.
    """
    _C.wait()


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: Any = None,
    pin_layout: bool = True,
) -> Any:
    """Take a step of the optimizer. Gradients are those of all devices as they are.

    Args:
        optimizer: any.
        barrier: whether to end the step of the device as well.
        optimizer_args: arguments of ``optimizer.step``.
        groups: must be None: there is one logical device.
        pin_layout: kept for programs that give it.

    Returns:
        What ``optimizer.step`` returned.

    Raises:
        NotImplementedError: groups are given.
    """
    require_no_groups("optimizer_step", groups)
    result = optimizer.step(**(optimizer_args or {}))
    if barrier:
        torch_xla.sync()
    return result


def save(
    data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False
) -> None:
    """Save ``data`` with its tensors on the CPU.

    Args:
        data: tensors in a structure, as a ``state_dict``.
        file_or_path: as for ``torch.save``.
        master_only: whether only the first process of a machine writes.
        global_master: whether only the first process of all writes.
    """
    torch_xla.sync()
    on_host = _to_cpu(data)
    if not master_only or is_master_ordinal(local=not global_master):
        torch.save(on_host, file_or_path)


def _to_cpu(data: Any) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda t: state.unwrapped(t).detach().cpu() if is_xla_tensor(t) else t, data
    )


def get_memory_info(device: Any = None) -> dict[str, int]:
    """The memory of the machine, or of the GPU: bytes used, their peak, and the limit.

    Args:
        device: kept for programs that give it.

    Returns:
        A dict of numbers.
    """
    return own.memory_info()


def optimization_barrier_(tensors: Iterable[torch.Tensor]) -> None:
    """Do nothing: the planner orders what it runs by cost, and needs no barrier.

    Args:
        tensors: on the device.
    """


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Do nothing: there is one logical device, and its parameters are one.

    Args:
        model: any module.
    """


def unlazy(tensors: Iterable[torch.Tensor]) -> None:
    """Compute tensors now, and wait for them.

    Args:
        tensors: on the device.
    """
    torch_xla.sync(wait=True)


__getattr__ = absent(
    "torch_xla.core.xla_model",
    {
        "all_to_all": NO_REGION,
        "reduce_scatter": NO_REGION,
        "reduce_scatter_bucketized": NO_REGION,
        "all_gather_bucketized": NO_REGION,
        "collective_permute": NO_REGION,
        "collective_broadcast": NO_REGION,
        "send": NO_REGION,
        "recv": NO_REGION,
        "get_stablehlo": "Use spmdx.debug.dump(): it gives the plan as text.",
        "get_stablehlo_bytecode": "Use spmdx.debug.dump(): it gives the plan as text.",
        "set_replication": "Call torch_xla.runtime.use_spmd() instead.",
        "do_on_ordinals": "There is one logical device: call the function.",
    },
)
