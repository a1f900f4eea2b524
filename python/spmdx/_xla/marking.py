# SPDX-License-Identifier: Apache-2.0
"""Annotating a tensor of the device with an OpSharding."""

import os
from typing import Any

import torch

from spmdx import runtime
from spmdx._annotate import sharding
from spmdx._annotate.mesh import Mesh
from spmdx._xla import home, op_sharding, state
from spmdx._xla.device import uploads
from spmdx._xla.manual import ManualTensor
from spmdx._xla.op_sharding import OpSharding, ShardingType


def is_spmd() -> bool:
    """Whether the program has called use_spmd."""
    return os.environ.get("XLA_USE_SPMD", "0") == "1"


def require_spmd() -> None:
    """Raise RuntimeError unless the program has called use_spmd."""
    if not is_spmd():
        raise RuntimeError("Please enable SPMD via `torch_xla.runtime.use_spmd()`")


def annotate(tensor: torch.Tensor, wanted: OpSharding) -> None:
    """Annotates a tensor of the device, whatever it was annotated with before."""
    found = state.require_xla(tensor)
    if isinstance(found, ManualTensor):
        raise RuntimeError("the tensor is manual. Call disable_manual_sharding first.")
    if wanted.kind == ShardingType.MANUAL:
        raise RuntimeError("a tensor cannot be annotated as manual. Call enable_manual_sharding.")
    home.annotate(found, wanted)
    uploads.used(found)


def mark(tensor: Any, wanted: OpSharding) -> None:
    """Annotates as torch_xla does: what is cut otherwise already is refused."""
    require_spmd()
    found = state.require_xla(tensor)
    before = sharding.annotation_of(found) if not isinstance(found, ManualTensor) else None
    if before is not None and not before.is_fully_replicated:
        said = state.sharding_of(found)
        if said == wanted:
            return
        raise RuntimeError(
            f"Existing annotation must be cleared first. The tensor is {said}, and is to be "
            f"{wanted}: call clear_sharding(t), or annotate_custom_sharding for a new one."
        )
    annotate(found, wanted)


def clear(tensor: torch.Tensor) -> torch.Tensor:
    """Forgets the annotation."""
    found = state.require_xla(tensor)
    if not isinstance(found, ManualTensor):
        sharding.clear_sharding(found)
        uploads.forget(found)
    return tensor


def replicate(tensor: torch.Tensor) -> None:
    """Annotates a tensor as what every device holds whole."""
    count = runtime.global_runtime_device_count()
    whole, mesh = (None,) * tensor.dim(), Mesh(range(count), (count,))
    home.annotate(tensor, op_sharding.op_sharding(mesh, [()] * tensor.dim(), whole))
