# SPDX-License-Identifier: Apache-2.0
"""Options of Lightning that say something else here, or nothing: what to write instead."""

from collections.abc import Mapping
from typing import Any

import torch

from spmdx._world import processes
from spmdx.errors import ShardingError

_ELSEWHERE = {
    "data_parallel_size": 'Give the mesh an axis: Mesh(range(8), (4, 2), ("data", "model")).',
    "tensor_parallel_size": 'Give the mesh an axis: Mesh(range(8), (4, 2), ("data", "model")).',
    "device_mesh": "Pass it as mesh.",
    "sharding_strategy": 'Write plan="fsdp" for FULL_SHARD, or leave it out for NO_SHARD.',
    "state_dict_type": "Write save_distributed_checkpoint=True for 'sharded', False for 'full'.",
    "mixed_precision": 'Write Trainer(precision="bf16-mixed").',
    "activation_checkpointing_policy": "Call torch.utils.checkpoint in the model.",
    "auto_wrap_policy": "Leave it out: when to gather what is planned for each op.",
    "cpu_offload": "Parameters stay on the devices. Cut them by more devices.",
    "find_unused_parameters": "Leave it out: a parameter without a gradient needs no word.",
    "static_graph": "Leave it out: every step is looked up.",
    "gradient_as_bucket_view": "Leave it out: there are no buckets.",
    "bucket_cap_mb": "Leave it out: sums of gradients are merged by the planner.",
    "ddp_comm_hook": "Leave it out: collectives are planned.",
    "process_group_backend": "Leave it out: docs/many_processes.md says how processes meet.",
    "timeout": "Set SPMDX_TIMEOUT, in seconds.",
    "cluster_environment": "Start the processes with torchrun.",
    "start_method": "Start the processes with torchrun.",
}


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise ShardingError for what the strategy does not take."""
    for name, value in options.items():
        mend = _ELSEWHERE.get(name, "Leave it out.")
        raise ShardingError(f"{name}={value!r} is no option of this strategy. {mend}")


def device_count(devices: Any) -> int:
    """How many devices each process drives, of ``Trainer(devices=...)``."""
    if isinstance(devices, str) and devices.strip().isdigit():
        devices = int(devices)
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise ShardingError(
            f"Trainer has devices={devices!r}. Expected how many devices a process drives. Write "
            'devices="auto" or devices=8, and say which ones by the mesh of the strategy.'
        )
    return devices


def require_nodes(num_nodes: int) -> None:
    """Raise ShardingError where processes cannot be spread over so many machines."""
    count = processes.process_count()
    if count % num_nodes:
        raise ShardingError(
            f"Trainer has num_nodes={num_nodes}, and there are {count} processes. Expected as many "
            "on each machine. Start them with torchrun --nnodes, or leave num_nodes out."
        )


def on_device(plugin: Any) -> Any:
    """The precision plugin, whose autocast is that of the device.

    Raises:
        ShardingError: it needs kernels that are not there.
    """
    name = type(plugin).__name__
    if name in ("TransformerEnginePrecision", "BitsandbytesPrecision"):
        raise ShardingError(
            f"the precision plugin is {name}, which brings kernels of its own. Expected one of "
            'PyTorch\'s dtypes. Write Trainer(precision="bf16-mixed") or "32-true".'
        )
    if hasattr(plugin, "autocast_context_manager") and plugin.device != "spmdx":
        plugin.device = "spmdx"
        if plugin.scaler is not None:
            plugin.scaler = torch.amp.GradScaler("spmdx")
    return plugin
