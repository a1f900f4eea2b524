# SPDX-License-Identifier: Apache-2.0
"""What planners see of a state dict: which tensors are cut, and copies of all on the CPU."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from spmdx._base.own_devices import NAMES
from spmdx._xla import sharded_tensor, shards, state
from spmdx._xla.op_sharding import ShardingType
from spmdx._xla.shards import XLAShard

_CUT = (ShardingType.TILED, ShardingType.PARTIAL)


@dataclasses.dataclass
class _CpuShards:
    """A sharded tensor as it was: what each device of this process held of it.

    Attributes:
        shards: one a device, in the order of their ids.
        global_tensor: without elements: shape, dtype, whether it requires a gradient.
    """

    shards: list[XLAShard]
    global_tensor: torch.Tensor


def _is_sharded_tensor(value: Any) -> bool:
    """Whether it is a tensor of the device of which no device holds all."""
    if not isinstance(value, torch.Tensor) or value.device.type not in NAMES:
        return False
    found = state.sharding_of(value)
    return found is not None and found.kind in _CUT and value.numel() > 0


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A state dict of the same form; what is no dict, list or tuple is changed."""
    if isinstance(value, dict):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(inner, change) for inner in value)
    return change(value)


def _on_cpu(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    found = state.unwrapped(value)
    if _is_sharded_tensor(found):
        return _cpu_shards(found)
    return found.detach().cpu().clone() if found.device.type == "cpu" else found.detach().cpu()


def _cpu_shards(tensor: torch.Tensor) -> _CpuShards:
    described = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return _CpuShards(shards.shards_of(tensor), described.requires_grad_(tensor.requires_grad))


def _sharded_cpu_state_dict(state_dict: dict[str, Any]) -> dict[str, Any]:
    """A copy on the CPU: _CpuShards where a tensor is cut, tensors where it is not."""
    return _mapped(state_dict, _on_cpu)


def _unwrapped(state_dict: dict[str, Any]) -> dict[str, Any]:
    """The same with the tensors that XLAShardedTensors stand for."""
    kind = sharded_tensor.XLAShardedTensor
    return _mapped(state_dict, lambda v: state.unwrapped(v) if isinstance(v, kind) else v)
