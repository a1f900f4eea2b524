# SPDX-License-Identifier: Apache-2.0
"""The annotation of a tensor: given to it, asked of it. Its functions trust their arguments."""

from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.classes import sharded_class
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.regions import current_region
from spmdx._annotate.spec import Sharding, to_handle
from spmdx._base.arguments import require_shape, require_tensor
from spmdx._base.own_devices import NAMES
from spmdx.errors import ShardingError, name_of


def require_spmdx(tensor: Any, argument: str = "the first argument") -> None:
    """Raise ShardingError unless it is a global tensor on device "spmdx"."""
    require_tensor(tensor, argument, " on device 'spmdx'")
    if _C.is_lazy(tensor):
        return
    if current_region() is not None:
        raise ShardingError(
            "the tensor is local to a manual region. Expected a global one: inside, specs and "
            "collectives say where things are. Mark what goes into the region or comes out of it."
        )
    name = name_of(tensor, "tensor")
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise ShardingError(
            f"{name} is inside torch.vmap or another transform of torch.func. Expected a tensor "
            "outside of it, where it is whole. Make the call outside, with what goes into the "
            "transform or comes out of it."
        )
    if tensor.device.type in NAMES:
        raise ShardingError(
            f"{name} is a {type(tensor).__name__}, which stands for other tensors or has no "
            "elements. Expected a tensor of the device itself. Pass the one that it stands for."
        )
    raise ShardingError(
        f"{name} is on device '{tensor.device}'. Expected a tensor on device 'spmdx'. "
        f'Move it there first: {name} = {name}.to("spmdx").'
    )


def is_state(tensor: torch.Tensor) -> bool:
    """Whether it lasts from step to step: a parameter, or a leaf that gets a gradient."""
    return isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad)


def handle_for(
    tensor: torch.Tensor, mesh: Mesh | Sharding | None, spec: Any, name: str | None = None
) -> "_C.ShardingHandle":
    """The sharding that ``spec`` gives to ``tensor``. Messages call the tensor ``name``.

    Without a name they call it as the user's line does, which is slow to find: so only if it fails.
    """
    require_spmdx(tensor)
    require_shape(tensor, name)
    try:
        handle = to_handle(spec, mesh, tensor, name or "tensor")
    except ShardingError:
        handle = to_handle(spec, mesh, tensor, name or name_of(tensor, "tensor"))
    return handle if handle.place else on_stage_of(tensor, handle)


def on_stage_of(tensor: torch.Tensor, handle: "_C.ShardingHandle") -> "_C.ShardingHandle":
    """``handle`` on the stage, and with the schedule, that ``tensor`` is marked with."""
    known = _C.annotation(tensor)
    if known is None or known.place is None or known.mesh != handle.mesh:
        return handle
    return handle.on(*known.place).scheduled(known.schedule)


def annotate(tensor: torch.Tensor, handle: "_C.ShardingHandle") -> Any:
    """Annotate ``tensor``, and give it the class of tensors that are; returns ``tensor`` itself.

    Its type is Any: callers above this file know it as a :class:`spmdx.ShardedTensor`.
    """
    _C.annotate(tensor, handle, is_state(tensor))
    tensor.__class__ = sharded_class(type(tensor))
    return tensor


def annotation_of(tensor: torch.Tensor) -> Sharding | None:
    """What the user wrote for ``tensor``, or None."""
    handle = _C.annotation(tensor)
    return None if handle is None else Sharding(handle)


def sharding_of(tensor: torch.Tensor) -> Sharding | None:
    """How ``tensor`` lies on the devices, or will; None where nothing is known."""
    if not _C.is_lazy(tensor):
        return None
    handle = _C.annotation(tensor) or _C.sharding_of(tensor)
    return None if handle is None else Sharding(handle)
