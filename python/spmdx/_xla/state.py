# SPDX-License-Identifier: Apache-2.0
"""How a tensor lies on the devices, as torch_xla would say it."""

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotation_of
from spmdx._annotate.spec import Sharding
from spmdx._xla import op_sharding
from spmdx._xla.device import uploads
from spmdx._xla.manual import ManualTensor
from spmdx._xla.op_sharding import OpSharding


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that an XLAShardedTensor stands for; others as they are."""
    while (inner := getattr(tensor, "global_tensor", None)) is not None:
        tensor = inner
    return tensor


def require_xla(tensor: object) -> torch.Tensor:
    """The tensor itself on the device. Raises RuntimeError for any other."""
    found = unwrapped(tensor) if isinstance(tensor, torch.Tensor) else tensor
    is_ours = isinstance(found, ManualTensor)
    if not isinstance(found, torch.Tensor) or not (is_ours or _C.is_lazy(found)):
        place = getattr(found, "device", type(found).__name__)
        raise RuntimeError(f"Expected XLA tensor. Got: {place}. Move it there: t.to('xla').")
    return found


def is_pending() -> bool:
    """Whether ops are recorded that no step has run."""
    return bool(_C.recording().nodes)


def sharding_of(tensor: torch.Tensor) -> OpSharding | None:
    """The sharding of a tensor; None where torch_xla would know none yet.

    That is what is not annotated and not computed: on the host still, or the result of an op. As
    long as ops are recorded, no sharding is known of what is not annotated.
    """
    found = require_xla(tensor)
    if isinstance(found, ManualTensor):
        return op_sharding.MANUAL
    annotation = annotation_of(found)
    if annotation is not None:
        return op_sharding.from_sharding(annotation)
    if uploads.is_fresh(found) or is_pending():
        return None
    handle = _C.sharding_of(found)
    return op_sharding.REPLICATED if handle is None else op_sharding.from_sharding(Sharding(handle))
