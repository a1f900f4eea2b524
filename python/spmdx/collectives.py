# SPDX-License-Identifier: Apache-2.0
"""Collectives that a function run by :func:`spmdx.shard_map` calls; all are differentiable."""

import dataclasses
import math
from collections.abc import Sequence

import torch

from spmdx._manual.arguments import (
    Axes,
    Reduction,
    local_dim,
    one_axis,
    reduction_of,
    region_of,
    sources_of,
)
from spmdx._manual.batched_views import BatchedView
from spmdx._manual.region import Body, reach
from spmdx.errors import naming


def _pinned(body: Body) -> Body:
    return lambda x: body(x.pinned()).pinned()


def all_reduce(tensor: torch.Tensor, axis: Axes, op: str = "sum") -> torch.Tensor:
    """The sum (maximum, minimum, mean) of every device's tensor, on all of them.

    Args:
        tensor: local, of any shape.
        axis: the mesh axis to reduce over, or several.
        op: ``"sum"``, ``"max"``, ``"min"`` or ``"mean"``. The gradient of a maximum is shared
            evenly among the devices that attain it.

    Returns:
        A tensor of the same shape that does not vary along ``axis``.

    Raises:
        ShardingError: outside of a manual region, no such axis or reduction, a sum of bools.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("data",))
        >>> total = spmdx.shard_map(
        ...     lambda x: spmdx.collectives.all_reduce(x.sum(), "data"), mesh, (("data",),), ()
        ... )
        >>> total(torch.arange(16.0).to("spmdx")).item()
        120.0
    """
    with naming("all_reduce"):
        region, axes = region_of(tensor, axis)
        reduction = reduction_of(op, tensor)
    return reach(region, tensor, _pinned(lambda x: _reduce(x, axes, reduction)))


def _reduce(x: BatchedView, axes: Sequence[str], reduction: Reduction) -> BatchedView:
    copies = math.prod(x.mesh.shape()[axis] for axis in axes if axis not in x.lead)
    x = x.reduce([axis for axis in axes if axis in x.lead], reduction.over)
    return x if copies == 1 else dataclasses.replace(x, tensor=reduction.copies(x.tensor, copies))


def all_gather(tensor: torch.Tensor, axis: Axes, dim: int = 0) -> torch.Tensor:
    """Every device's tensor, one behind the other in a dim, on all of them.

    Args:
        tensor: local, of at least one dim.
        axis: the mesh axis to gather along, or several, major first.
        dim: the dim that grows by the size of ``axis``.

    Returns:
        A tensor that does not vary along ``axis``.

    Raises:
        ShardingError: outside of a manual region, no such axis or dim.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("data",))
        >>> def ranks(x):
        ...     return x * spmdx.collectives.all_gather(x, "data").sum()
        >>> y = spmdx.shard_map(ranks, mesh, (("data",),), ("data",))(torch.ones(8).to("spmdx"))
        >>> y.tolist()[:2]
        [8.0, 8.0]
    """
    with naming("all_gather"):
        region, axes = region_of(tensor, axis)
        dim = local_dim(tensor, dim)

    def body(x: BatchedView) -> BatchedView:
        for name in reversed(axes):
            x = x.vary(name).join(name, dim)
        return x

    return reach(region, tensor, _pinned(body))


def reduce_scatter(tensor: torch.Tensor, axis: Axes, dim: int = 0, op: str = "sum") -> torch.Tensor:
    """Each device's part of the sum (maximum, minimum, mean) of all devices' tensors.

    Args:
        tensor: local, of at least one dim.
        axis: the mesh axis to reduce over, or several, major first.
        dim: the dim that is cut into as many parts as there are devices along ``axis``.
        op: as for :func:`all_reduce`.

    Returns:
        A tensor that is smaller in ``dim``.

    Raises:
        ShardingError: as :func:`all_reduce`; no such dim, or its parts would not be equal.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("data",))
        >>> def scatter(x):
        ...     return spmdx.collectives.reduce_scatter(x, "data")
        >>> y = spmdx.shard_map(scatter, mesh, (None,), ("data",))(torch.arange(8.0).to("spmdx"))
        >>> y.tolist()
        [0.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0]
    """
    with naming("reduce_scatter"):
        region, axes = region_of(tensor, axis)
        reduction = reduction_of(op, tensor)
        dim = local_dim(tensor, dim, math.prod(region.mesh.shape()[name] for name in axes))

    def body(x: BatchedView) -> BatchedView:
        x = _reduce(x, axes, reduction)
        for name in axes:
            x = x.split(name, dim)
        return x

    return reach(region, tensor, _pinned(body))


def all_to_all(tensor: torch.Tensor, axis: str, split_dim: int, concat_dim: int) -> torch.Tensor:
    """Device i gets part i of every device's tensor: one dim becomes whole, another is cut.

    Args:
        tensor: local, of at least one dim.
        axis: the mesh axis to exchange along.
        split_dim: the dim that is cut into as many parts as there are devices along ``axis``.
        concat_dim: the dim in which the received parts lie one behind the other.

    Returns:
        A tensor of as many elements.

    Raises:
        ShardingError: outside of a manual region, no such axis or dim, parts that are not equal.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("seq",))
        >>> def heads(x):  # a cut sequence becomes whole, the heads are cut
        ...     return spmdx.collectives.all_to_all(x, "seq", split_dim=1, concat_dim=0)
        >>> y = spmdx.shard_map(heads, mesh, (("seq", None),), (None, "seq"))
        >>> torch.equal(y(torch.eye(16).to("spmdx")).cpu(), torch.eye(16))
        True
    """
    with naming("all_to_all"):
        region, (axis,) = one_axis(tensor, axis)
        split_dim = local_dim(tensor, split_dim, region.mesh.shape()[axis])
        concat_dim = local_dim(tensor, concat_dim)
    sender = object()

    def body(x: BatchedView) -> BatchedView:
        return x.vary(axis).rename(axis, sender).split(axis, split_dim).join(sender, concat_dim)

    return reach(region, tensor, _pinned(body))


def permute(tensor: torch.Tensor, axis: str, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Sends tensors from device to device; who gets nothing has zeros.

    Args:
        tensor: local, of any shape.
        axis: the mesh axis along which devices are counted.
        pairs: (sender, receiver) coordinates; each at most once a sender and once a receiver.

    Returns:
        A tensor of the same shape.

    Raises:
        ShardingError: outside of a manual region, no such axis, pairs out of range or repeated.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("ring",))
        >>> def turn(x):
        ...     return spmdx.collectives.permute(x, "ring", [(i, (i + 1) % 8) for i in range(8)])
        >>> turned = spmdx.shard_map(turn, mesh, (("ring",),), ("ring",))
        >>> turned(torch.arange(8.0).to("spmdx")).tolist()
        [7.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    with naming("permute"):
        region, (axis,) = one_axis(tensor, axis)
        sources = sources_of(pairs, region.mesh.shape()[axis], axis)
    return reach(region, tensor, _pinned(lambda x: x.vary(axis).permute(axis, sources)))


def axis_index(axis: str) -> torch.Tensor:
    """The coordinate of the device along a mesh axis.

    Args:
        axis: the mesh axis.

    Returns:
        An integer tensor of no dims that varies along ``axis``.

    Raises:
        ShardingError: outside of a manual region, or no such axis.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("data",))
        >>> def rank(x):
        ...     return x + spmdx.collectives.axis_index("data")
        >>> ranks = spmdx.shard_map(rank, mesh, (("data",),), ("data",))
        >>> ranks(torch.zeros(8).to("spmdx")).tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    with naming("axis_index"):
        region, (axis,) = one_axis(None, axis)
    return region.coordinates[axis]


def axis_size(axis: str) -> int:
    """The number of devices along a mesh axis.

    Args:
        axis: the mesh axis.

    Returns:
        Its size.

    Raises:
        ShardingError: outside of a manual region, or no such axis.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (8,), ("data",))
        >>> mean = spmdx.shard_map(
        ...     lambda x: x / spmdx.collectives.axis_size("data"), mesh, (("data",),), ("data",)
        ... )
        >>> mean(torch.ones(8).to("spmdx")).sum().item()
        1.0
    """
    with naming("axis_size"):
        region, (axis,) = one_axis(None, axis)
    return region.mesh.shape()[axis]


__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "axis_index",
    "axis_size",
    "permute",
    "reduce_scatter",
]
