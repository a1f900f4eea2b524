# SPDX-License-Identifier: Apache-2.0
"""Annotations: say how a tensor lies on a mesh, and ask how it does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

import spmdx._C as _C
from spmdx._annotate.classes import plain_class, sharded_class
from spmdx._annotate.mesh import Mesh, require_mesh, require_real
from spmdx._annotate.regions import current_region
from spmdx._annotate.spec import Sharding, to_handle
from spmdx._base.arguments import require_shape, require_tensor
from spmdx.errors import ShardingError, name_of, naming

if TYPE_CHECKING:
    from spmdx._annotate.tensor import ShardedTensor


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
    if tensor.device.type == "spmdx":
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
    tensor: torch.Tensor, mesh: Mesh | None, spec: Any, name: str | None = None
) -> "_C.ShardingHandle":
    """The sharding that ``spec`` gives to ``tensor``. Messages call the tensor ``name``.

    Without a name they call it as the user's line does, which is slow to find: so only if it fails.
    """
    require_spmdx(tensor)
    require_shape(tensor, name)
    try:
        return to_handle(spec, mesh, tensor, name or "tensor")
    except ShardingError:
        return to_handle(spec, mesh, tensor, name or name_of(tensor, "tensor"))


def annotate(tensor: torch.Tensor, handle: "_C.ShardingHandle") -> "ShardedTensor":
    """Annotate ``tensor``, and give it the class of tensors that are; returns ``tensor`` itself."""
    _C.annotate(tensor, handle, is_state(tensor))
    tensor.__class__ = sharded_class(type(tensor))
    return cast("ShardedTensor", tensor)  # from the line above on


def mark_sharding(
    tensor: torch.Tensor, mesh: Mesh | None = None, partition_spec: Sequence = ()
) -> "ShardedTensor":
    """Say how ``tensor`` lies on ``mesh``, in place; it never changes a result.

    Args:
        tensor: of any shape and dtype, on device "spmdx". Before data exist it never exists as a
            whole; a traced value gets a constraint; a parameter's gradient and optimizer state
            follow it. Marking again moves the data, device to device.
        mesh: the devices; None means the global mesh.
        partition_spec: one entry for each dim of ``tensor``: None, an axis name, an axis index,
            or a tuple of them, first is major. Axes that are not named hold replicas.

    Returns:
        ``tensor`` itself, now a :class:`ShardedTensor`.

    Raises:
        ShardingError: the tensor is not on the device, or the spec does not fit it or the mesh.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> x = torch.ones(64, 128).to("spmdx")
        >>> spmdx.mark_sharding(x, mesh, ("data", None)) is x
        True
        >>> spmdx.get_annotation(x).spec
        PartitionSpec('data', None)
        >>> [tuple(shard.data.shape) for shard in x.local_shards][:2]
        [(16, 128), (16, 128)]

    Source: GSPMD, arXiv:2105.04663; the name is PyTorch/XLA's.
    """
    with naming("mark_sharding"):
        return annotate(tensor, handle_for(tensor, mesh, partition_spec))


def clear_sharding(tensor: torch.Tensor) -> torch.Tensor:
    """Forget what was said of ``tensor``; the data stay where they are.

    Args:
        tensor: of any shape and dtype, on device "spmdx".

    Returns:
        ``tensor`` itself, with the class it had before.

    Raises:
        ShardingError: the tensor is not on the device.

    Example:
        >>> import torch, spmdx
        >>> x = torch.ones(8).to("spmdx")
        >>> _ = spmdx.mark_sharding(x, spmdx.get_1d_mesh("data"), ("data",))
        >>> spmdx.get_annotation(spmdx.clear_sharding(x)) is None
        True
    """
    with naming("clear_sharding"):
        require_spmdx(tensor)
        _C.annotate(tensor, None, is_state(tensor))
    tensor.__class__ = plain_class(type(tensor))
    return tensor


def get_annotation(tensor: torch.Tensor) -> Sharding | None:
    """What the user wrote for ``tensor``, or None.

    Args:
        tensor: of any shape, dtype and device.

    Returns:
        The sharding of :func:`mark_sharding`; None where it was not called.

    Raises:
        ShardingError: it is no tensor.

    Example:
        >>> import torch, spmdx
        >>> spmdx.get_annotation(torch.ones(8).to("spmdx")) is None
        True
    """
    with naming("get_annotation"):
        require_tensor(tensor)
    handle = _C.annotation(tensor)
    return None if handle is None else Sharding(handle)


def get_sharding(tensor: torch.Tensor) -> Sharding | None:
    """How ``tensor`` lies on the devices, or will once the traced program runs; runs nothing.

    Args:
        tensor: of any shape, dtype and device.

    Returns:
        The sharding; None where nothing is known (no annotation anywhere, other devices).

    Raises:
        ShardingError: it is no tensor, or the traced program cannot be planned.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("data",))
        >>> x = spmdx.mark_sharding(torch.ones(64, 4).to("spmdx"), mesh, ("data", None))
        >>> spmdx.get_sharding(torch.relu(x)).spec
        PartitionSpec('data', None)
    """
    with naming("get_sharding"):
        require_tensor(tensor)
    if not _C.is_lazy(tensor):
        return None
    handle = _C.annotation(tensor) or _C.sharding_of(tensor)
    return None if handle is None else Sharding(handle)


def mark_sharding_with_gradients(
    tensor: torch.Tensor, mesh: Mesh | None = None, partition_spec: Sequence = ()
) -> "ShardedTensor":
    """Like :func:`mark_sharding`, and the gradient of ``tensor`` gets the same sharding.

    Args:
        tensor: of any shape and dtype, on device "spmdx".
        mesh: the devices; None means the global mesh.
        partition_spec: as for :func:`mark_sharding`.

    Returns:
        ``tensor`` itself, now a :class:`ShardedTensor`.

    Raises:
        ShardingError: as :func:`mark_sharding`.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> x = torch.ones(8, 4).to("spmdx").requires_grad_()
        >>> y = spmdx.mark_sharding_with_gradients(x * 2, mesh, ("data", None))
        >>> y.sum().backward()
        >>> x.grad.cpu().sum().item()
        64.0
    """
    with naming("mark_sharding_with_gradients"):
        handle = handle_for(tensor, mesh, partition_spec)
        mesh = require_mesh(mesh)
        result = annotate(tensor, handle)

    def mark(grad: torch.Tensor) -> torch.Tensor:  # as was said in the call
        with naming("mark_sharding_with_gradients"):
            require_real(mesh)
            return annotate(grad.clone(), handle)

    if result.requires_grad and not result.is_leaf:  # a leaf's gradient follows it anyway
        result.register_hook(mark)
    return result


def shard_as(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give two tensors of the same rank one sharding: that of whichever has one.

    Args:
        a: of any shape and dtype, on device "spmdx". It wins where both have a sharding.
        b: of the same rank.

    Returns:
        ``a`` and ``b``.

    Raises:
        ShardingError: the ranks differ, or nothing is known of either.

    Example:
        >>> import torch, spmdx
        >>> a, b = torch.ones(8).to("spmdx"), torch.ones(8).to("spmdx")
        >>> _ = spmdx.mark_sharding(a, spmdx.get_1d_mesh("data"), ("data",))
        >>> _ = spmdx.shard_as(a, b)
        >>> spmdx.get_annotation(b).spec
        PartitionSpec('data')
    """
    with naming("shard_as"):
        require_spmdx(a)
        require_spmdx(b, "the second argument")
        if a.dim() != b.dim():
            raise ShardingError(
                f"the tensors have rank {a.dim()} and {b.dim()}. Expected the same rank. "
                "Reshape one of them first."
            )
        for known in (get_annotation, get_sharding):
            for source, target in ((a, b), (b, a)):
                sharding = known(source)
                if sharding is not None:
                    mark_sharding(target, sharding.mesh, sharding.spec)
                    return a, b
        raise ShardingError(
            "nothing is known of the sharding of either tensor. Expected one of them to have "
            "one. Call spmdx.mark_sharding on it first."
        )


def distribute_tensor(
    tensor: torch.Tensor, device_mesh: Any, placements: Sequence[Any]
) -> "ShardedTensor":
    """DTensor's way to write :func:`mark_sharding`.

    Args:
        tensor: of any shape and dtype; moved to device "spmdx" where it is not there yet.
        device_mesh: a :class:`Mesh` or a ``torch.distributed.DeviceMesh``.
        placements: ``Shard(dim)`` or ``Replicate()`` for every axis of the mesh.

    Returns:
        The tensor on device "spmdx", in place if it was there already.

    Raises:
        ShardingError: no tensor, placements that are neither, too many or too few, a bad dim.

    Example:
        >>> import torch, spmdx
        >>> from torch.distributed.tensor import Replicate, Shard
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> spmdx.distribute_tensor(torch.ones(8, 2), mesh, [Shard(0), Replicate()]).partition_spec
        PartitionSpec('data', None)
    """
    with naming("distribute_tensor"):
        require_tensor(tensor)
        require_shape(tensor)
        mesh = device_mesh if isinstance(device_mesh, Mesh) else Mesh.from_device_mesh(device_mesh)
        spec = spec_of_placements(placements, mesh, tensor.dim())
    if not _C.is_lazy(tensor):
        tensor = tensor.detach().to("spmdx").requires_grad_(tensor.requires_grad)
    with naming("distribute_tensor"):
        return annotate(tensor, handle_for(tensor, mesh, spec))


def _require_placements(placements: Any, mesh: Mesh) -> None:
    are = isinstance(placements, tuple | list) and all(hasattr(p, "is_shard") for p in placements)
    if not are:
        raise ShardingError(
            f"the placements are {placements!r}. Expected Shard(dim) or Replicate() for every axis "
            f"of {mesh!r}. Write them so, or give a partition spec to spmdx.mark_sharding."
        )
    if len(placements) != mesh.ndim:
        raise ShardingError(
            f"{len(placements)} placements for {mesh!r}. Expected one for every axis of the "
            f"mesh. Write {mesh.ndim} of Shard(dim) and Replicate()."
        )


def spec_of_placements(placements: Sequence[Any], mesh: Mesh, rank: int) -> tuple:
    """The partition spec that says the same as DTensor ``placements`` for a tensor of ``rank``."""
    _require_placements(placements, mesh)
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis, placement in zip(mesh.axis_names, placements, strict=True):
        if placement.is_replicate():
            continue
        dim: Any = getattr(placement, "dim", None)  # an int where it is a shard
        if not placement.is_shard() or not -rank <= dim < rank:
            mend = "Reduce the values first" if placement.is_partial() else "Write Replicate()"
            raise ShardingError(
                f"the placement {placement} of axis {axis!r} does not fit a tensor of rank "
                f"{rank}. Expected Replicate() or Shard(dim) with a dim of the tensor. {mend}."
            )
        dims[dim].append(axis)
    return tuple(tuple(axes) or None for axes in dims)
