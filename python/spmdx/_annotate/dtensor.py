# SPDX-License-Identifier: Apache-2.0
"""To and from torch.distributed's DeviceMesh and DTensor, whose processes have one device each."""

from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotate
from spmdx._annotate.local_shards import check_shapes, pieces_of, shapes_of
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.placements import spec_of_placements
from spmdx._annotate.spec import Sharding, to_handle
from spmdx.errors import ShardingError, naming


def from_dtensor(dtensor: Any) -> Any:
    """What :meth:`spmdx.ShardedTensor.from_dtensor` returns."""
    with naming("from_dtensor"):
        if not hasattr(dtensor, "placements"):
            raise ShardingError(
                f"a {type(dtensor).__name__} was given. Expected a "
                "torch.distributed.tensor.DTensor. Call spmdx.mark_sharding on other tensors."
            )
        mesh = Mesh.from_device_mesh(dtensor.device_mesh)
        spec = spec_of_placements(dtensor.placements, mesh, dtensor.dim())
        sharding = Sharding(to_handle(spec, mesh, dtensor, "the DTensor"))
        pieces = pieces_of(
            [dtensor.detach().to_local()] if mesh.addressable_positions else [], mesh, dtensor.dtype
        )
        check_shapes(shapes_of(pieces, mesh), sharding, dtensor.shape)
        result = _C.from_local(pieces, sharding._handle, list(dtensor.shape), dtensor.dtype, True)
    return annotate(_leaf_as(dtensor, result), sharding._handle)


def to_dtensor(tensor: torch.Tensor, sharding: Sharding) -> Any:
    """What :meth:`spmdx.ShardedTensor.to_dtensor` returns of a tensor that lies so."""
    from torch.distributed.tensor import DTensor

    device_mesh, placements = sharding.mesh.to_device_mesh(), sharding.placements
    (shard,) = _C.local_data(tensor, on_host=False)[0]
    result = DTensor.from_local(
        shard,
        device_mesh,
        placements,
        run_check=False,
        shape=tensor.shape,
        stride=torch.empty(tensor.shape, device="meta").stride(),
    )
    return _leaf_as(tensor, result)


def _leaf_as(source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """``result``, a parameter if ``source`` is one, which gets a gradient if ``source`` does."""
    if isinstance(source, torch.nn.Parameter):
        return torch.nn.Parameter(result, source.requires_grad)
    return result.requires_grad_(source.requires_grad)
