# SPDX-License-Identifier: Apache-2.0
"""Data of the CPU sent to the device, and marked on the way."""

from typing import Any

import torch
from torch.utils import _pytree as pytree

from spmdx import runtime as own
from spmdx._xla import marking
from spmdx._xla.device import uploads


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
