# SPDX-License-Identifier: Apache-2.0
"""torch_xla.core.xla_model: devices, steps, saving, and collectives of one logical device."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import spmdx._C as _C
from spmdx import manual_seed
from spmdx import runtime as own
from spmdx._xla import marking, state
from spmdx._xla.collectives import (
    NO_REGION,
    all_gather,
    all_reduce,
    mesh_reduce,
    reduce_gradients,
    rendezvous,
    require_no_groups,
)
from spmdx._xla.device import steps, uploads
from spmdx._xla.device.absent import absent
from spmdx._xla.device.rate import RateTracker
from spmdx.torch_xla import runtime, torch_xla

__all__ = [
    "RateTracker",
    "all_gather",
    "all_reduce",
    "mesh_reduce",
    "optimizer_step",
    "reduce_gradients",
    "rendezvous",
    "save",
    "xla_device",
]

REDUCE_SUM, REDUCE_MUL, REDUCE_AND = "sum", "mul", "and"
REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "or", "min", "max"


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the device."""
    return _C.is_lazy(state.unwrapped(tensor))


def get_xla_supported_devices(max_devices: int | None = None) -> list[str]:
    """The names of the logical devices: one."""
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
    """
    return torch_xla.real_devices() * (1 if devices is None else len(devices))


def xla_device_hw(device: Any) -> str:
    """The kind of hardware below a device; of a device of another kind that kind.

    Args:
        device: a device, or its name.
    """
    kind = torch.device(device).type
    return str(runtime.device_type()) if kind in ("xla", "spmdx") else kind.upper()


def xla_device_kind(device: Any = None) -> str:
    """The kind of hardware below the device."""
    return str(runtime.device_type())


def xla_replication_devices(local_devices: Sequence[Any]) -> list[str]:
    """The hardware below logical devices, by name."""
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


def send_cpu_data_to_device(datas: Any, device: Any, input_sharding: Any = None) -> list[Any]:
    """Tensors of the CPU on the device, marked as a ShardingSpec says.

    Args:
        datas: a list of tensors, or of structures of them.
        device: the device.
        input_sharding: a ``ShardingSpec``, which counts for tensors of its rank; None replicates.

    Returns:
        The same structure.

    Raises:
        RuntimeError: with ``minibatch``, rows that the devices of this process cannot share.
    """
    return pytree.tree_map_only(torch.Tensor, lambda t: _sent(t, device, input_sharding), datas)


def _sent(tensor: torch.Tensor, device: Any, spec: Any) -> torch.Tensor:
    if spec is not None and spec.minibatch and tensor.dim():
        count = own.addressable_runtime_device_count()
        if tensor.shape[0] % count:
            raise RuntimeError(
                "When minibatch is configured, the per-host batch size must be divisible by local "
                f"runtime device count. Per host input data shape = {tuple(tensor.shape)}, local "
                f"devices = {count}"
            )
    moved = tensor.to(device)
    wanted = None if spec is None else spec.xla_spec(tensor)
    if wanted is not None:
        marking.annotate(moved, wanted)
    elif marking.is_spmd():
        marking.replicate(moved)
    uploads.used(moved)
    return moved


def set_rng_state(seed: int, device: Any = None) -> None:
    """Set the state of the device's generator.

    Args:
        seed: what :func:`get_rng_state` gave, or any int.
        device: kept for programs that give it.
    """
    manual_seed(seed)


def get_rng_state(device: Any = None) -> int:
    """A number that :func:`set_rng_state` takes, drawn from the device's generator.

    Args:
        device: kept for programs that give it.
    """
    module = torch.get_device_module("spmdx")
    kept = module.get_rng_state()
    drawn = int.from_bytes(bytes(kept.cpu().tolist()[:16]), "little")
    seed = (drawn ^ (drawn >> 64)) & (2**63 - 1)
    manual_seed(seed)
    return seed


@contextlib.contextmanager
def fork_rng(device: Any = None, enabled: bool = True) -> Iterator[None]:
    """A block after which the device's generator is as it was.

    Args:
        device: kept for programs that give it.
        enabled: whether it is.
    """
    module = torch.get_device_module("spmdx")
    kept = module.get_rng_state()
    yield
    if enabled:
        module.set_rng_state(kept)


def get_memory_info(device: Any = None) -> dict[str, int]:
    """The memory of the machine, or of the GPU: bytes used, their peak, and the limit.

    Args:
        device: kept for programs that give it.
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
