# SPDX-License-Identifier: Apache-2.0
"""Annotations: say how a tensor lies on a mesh, and ask how it does."""

from collections.abc import Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import (
    annotate,
    annotation_of,
    handle_for,
    is_state,
    require_spmdx,
    sharding_of,
)
from spmdx._annotate.classes import plain_class
from spmdx._annotate.dtensor import placed_on
from spmdx._annotate.mesh import Mesh, require_mesh, require_real
from spmdx._annotate.spec import Sharding, pair_of
from spmdx._annotate.tensor import ShardedTensor
from spmdx._base.arguments import require_shape, require_tensor
from spmdx.errors import ShardingError, naming


def mark_sharding(
    tensor: torch.Tensor, mesh: Mesh | Sharding | None = None, partition_spec: Sequence = ()
) -> ShardedTensor:
    """Say how ``tensor`` lies on ``mesh``, in place; it never changes a result.

    Args:
        tensor: of any shape and dtype, on device "spmdx". Before data exist it never exists as a
            whole; a traced value gets a constraint; a parameter's gradient and optimizer state
            follow it. Marking again moves the data, device to device.
        mesh: the devices; None means the global mesh. A :class:`Sharding` is mesh and spec.
        partition_spec: one entry for each dim of ``tensor``: None, an axis name, an axis index,
            or a tuple of them, first is major. Axes that are not named hold replicas. One ``...``
            stands for all dims that the other entries leave over.

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
    return annotation_of(tensor)


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
    return sharding_of(tensor)


def mark_sharding_with_gradients(
    tensor: torch.Tensor, mesh: Mesh | Sharding | None = None, partition_spec: Sequence = ()
) -> ShardedTensor:
    """Like :func:`mark_sharding`, and the gradient of ``tensor`` gets the same sharding.

    Args:
        tensor: of any shape and dtype, on device "spmdx".
        mesh: the devices; None means the global mesh. A :class:`Sharding` is mesh and spec.
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
        devices = require_mesh(pair_of(mesh, partition_spec)[0])
        result = annotate(tensor, handle)

    def mark(grad: torch.Tensor) -> torch.Tensor:  # as was said in the call
        with naming("mark_sharding_with_gradients"):
            require_real(devices)
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
    tensor: torch.Tensor, device_mesh: Any = None, placements: Sequence[Any] | None = None
) -> ShardedTensor:
    """DTensor's way to write :func:`mark_sharding`.

    Args:
        tensor: of any shape and dtype; moved to device "spmdx" where it is not there yet.
        device_mesh: a :class:`Mesh` or a ``torch.distributed.DeviceMesh``; None means the global
            mesh. A :class:`Sharding` is mesh and placements.
        placements: ``Shard(dim)`` or ``Replicate()`` for every axis of the mesh; None replicates.

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
        mesh, spec = _placed(device_mesh, placements, tensor.dim())
    if not _C.is_lazy(tensor):
        tensor = tensor.detach().to("spmdx").requires_grad_(tensor.requires_grad)
    with naming("distribute_tensor"):
        return annotate(tensor, handle_for(tensor, mesh, spec))


def _placed(device_mesh: Any, placements: Any, rank: int) -> tuple[Mesh, tuple[Any, ...]]:
    """Mesh and partition spec of what distribute_tensor is given."""
    if isinstance(device_mesh, Sharding):
        return pair_of(device_mesh, placements)
    if placements is None:
        return require_mesh(device_mesh), (...,)
    return placed_on(device_mesh, placements, rank)
