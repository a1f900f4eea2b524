# SPDX-License-Identifier: Apache-2.0
"""Data of the CPU sent to the device, and marked on the way."""

from typing import Any

import torch

from spmdx import runtime as own
from spmdx._data.parts import place_part
from spmdx._data.split import split_of
from spmdx._xla import home, marking
from spmdx._xla.device import uploads
from spmdx._xla.device.structures import rewritten
from spmdx._xla.op_sharding import OpSharding


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
    return rewritten(datas, torch.is_tensor, lambda t: _sent(t, device, input_sharding))


def _sent(tensor: torch.Tensor, device: Any, spec: Any) -> torch.Tensor:
    if spec is not None and spec.minibatch and tensor.dim():
        count = own.addressable_runtime_device_count()
        if tensor.shape[0] % count:
            raise RuntimeError(
                "When minibatch is configured, the per-host batch size must be divisible by local "
                f"runtime device count. Per host input data shape = {tuple(tensor.shape)}, local "
                f"devices = {count}"
            )
    wanted = None if spec is None else spec.xla_spec(tensor)
    if wanted is not None and spec.minibatch and own.process_count() > 1:
        return _joined(tensor, wanted)
    moved = tensor.to(device)
    if wanted is not None:
        marking.annotate(moved, wanted)
    elif marking.is_spmd():
        marking.replicate(moved)
    uploads.used(moved)
    return moved


def _joined(part: torch.Tensor, wanted: OpSharding) -> torch.Tensor:
    """The rows of all processes as one tensor; each has as many."""
    mesh, spec = home.lying(wanted, part.dim())
    rows = [len(part)] * own.process_count()
    whole = place_part(part.detach().cpu(), rows, split_of(mesh, spec), mesh, spec, "the batch")
    home.note(whole)
    return whole
