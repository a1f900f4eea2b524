# SPDX-License-Identifier: Apache-2.0
"""torch_xla._XLAC: of torch_xla's compiled module, what programs call."""

from collections.abc import Sequence
from typing import Any

import torch

from spmdx._xla import manual, manual_api, marking, shards, state
from spmdx._xla.device import counters, preemption, uploads
from spmdx._xla.device.absent import absent
from spmdx._xla.manual import ManualTensor
from spmdx._xla.op_sharding import OpSharding, ShardingType

__all__ = ["OpSharding"]

_activate_preemption_sync_manager = preemption.activate
_deactivate_preemption_sync_manager = preemption.deactivate
_sync_point_reached = preemption.reached


def _get_xla_sharding_spec(tensor: torch.Tensor) -> str:
    """The sharding as XLA writes it; empty where none is known."""
    found = state.sharding_of(tensor)
    return "" if found is None else str(found)


def _get_xla_sharding_specs(tensors: Sequence[torch.Tensor]) -> list[str]:
    return [_get_xla_sharding_spec(t) for t in tensors]


def _get_xla_sharding_type(tensor: torch.Tensor) -> int | None:
    found = state.sharding_of(tensor)
    return None if found is None else int(found.kind)


def _get_xla_op_sharding(tensor: torch.Tensor) -> OpSharding | None:
    return state.sharding_of(tensor)


def _xla_mark_sharding(tensor: torch.Tensor, sharding: OpSharding) -> None:
    marking.mark(tensor, sharding)


def _xla_annotate_custom_sharding(tensor: torch.Tensor, sharding: OpSharding) -> None:
    marking.annotate(tensor, sharding)


def _xla_clear_sharding(tensor: torch.Tensor) -> None:
    marking.clear(tensor)


_xla_get_auto_sharding = counters.shardings_are_chosen


def _get_local_shards(tensors: Sequence[torch.Tensor]) -> list[list[tuple[torch.Tensor, str]]]:
    found = [shards.shards_of(state.require_xla(t)) for t in tensors]
    return [[(shard.data, shard.shard_device) for shard in of_one] for of_one in found]


def _get_local_shard_replica_and_indices(
    tensors: Sequence[torch.Tensor],
) -> list[list[tuple[int, Any]]]:
    plain = [state.require_xla(t) for t in tensors]
    return [_numbered(t) for t in plain]


def _numbered(tensor: torch.Tensor) -> list[tuple[int, Any]]:
    return shards.places_of(tensor.shape, shards.sharding_for(tensor))


def _load_local_shards(
    tensor: torch.Tensor, data: Sequence[torch.Tensor], devices: Sequence[str]
) -> None:
    shards.load(state.require_xla(tensor), list(zip(devices, data, strict=True)))


def _global_tensor_from_cpu_shards(
    data: Sequence[torch.Tensor], sharding: OpSharding, global_shape: Sequence[int] | None = None
) -> torch.Tensor:
    return shards.from_shards(data, sharding, global_shape)


def _spmd_full_to_shard_shape(tensor: torch.Tensor) -> torch.Tensor:
    return manual_api.full_to_shard_shape(tensor)


def _spmd_shard_to_full_shape(
    tensor: torch.Tensor, sharding: OpSharding, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return manual_api.shard_to_full_shape(tensor, sharding, shape, dtype)


def _mark_manual_sharding(tensor: torch.Tensor) -> torch.Tensor:
    return manual_api._mark_manual_sharding(tensor).global_tensor


def _manual(tensor: torch.Tensor) -> ManualTensor:
    found = state.unwrapped(tensor)
    if not isinstance(found, ManualTensor):
        raise RuntimeError("the tensor is not manual. Call enable_manual_sharding first.")
    return found


def _xla_spmd_all_reduce(
    reduce_type: str, tensor: torch.Tensor, scale: float, groups: Any
) -> torch.Tensor:
    return manual.all_reduce(_manual(tensor), reduce_type, scale, groups)


def _xla_spmd_reduce_scatter(
    reduce_type: str,
    tensor: torch.Tensor,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Any,
) -> torch.Tensor:
    found = _manual(tensor)
    return manual.reduce_scatter(found, reduce_type, scale, scatter_dim, shard_count, groups)


def _get_xla_tensor_debug_info(tensor: torch.Tensor) -> str:
    """What is known of a tensor, in torch_xla's words."""
    found = state.require_xla(tensor)
    fresh = uploads.is_fresh(found)
    known = state.sharding_of(found)
    is_result = not fresh and known is None and not uploads.is_data(found)
    size = list(found.shape)
    lines = [
        f"XLA Shape: {found.dtype}{size}",
        f"ShardingSpec: {known}",
        "IR: None" if fresh else f"IR: {'pending' if is_result else 'xla::device_data'}",
        f"Tensor on host: {f'with size {size}' if fresh else None}",
        "Device: SPMD:0",
    ]
    if known is None:
        return "\n".join([*lines, "XLAData: None"])
    count = len(shards._own_devices())
    lines += ["XLAData:", "  Data Device: SPMD:0", f"  Data Shape: {found.dtype}{size}"]
    kind = "XLAShardedData" if known.kind != ShardingType.UNKNOWN else "XLAData"
    return "\n".join([*lines, f"  {kind}", f"  OpSharding: {known}", f"  NumShards: {count}"])


def _ensure_xla_coordinator_initialized(
    global_rank: int = 0, world_size: int = 1, master_addr: str = "", master_port: str = ""
) -> None:
    """Do nothing: processes meet before the first step."""


_NO_HASH = "Use torch_xla.debug.metrics: UncachedCompile counts the plans that were made."
_NO_TEXT = "Use spmdx.debug.dump(), or spmdx.explain(tensor): there is no HLO here."

__getattr__ = absent(
    "torch_xla._XLAC",
    {
        "_get_xla_tensors_hlo": _NO_TEXT,
        "_get_xla_tensors_text": _NO_TEXT,
        "_get_xla_tensors_dot": _NO_TEXT,
        "_get_graph_hash": _NO_HASH,
        "_is_placecholder": "The backend openxla records ops: there are no placeholders.",
        "lowering": _NO_TEXT,
    },
)
