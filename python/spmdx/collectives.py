# SPDX-License-Identifier: Apache-2.0
"""Collectives that a function run by :func:`spmdx.shard_map` calls; all are differentiable."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch

from spmdx._region import Body, Region, current_region, reach
from spmdx._unfolded import Unfolded
from spmdx.errors import ShardingError, naming

Axes = str | Sequence[str]


@dataclasses.dataclass(frozen=True)
class _Reduction:
    over: Callable[[torch.Tensor, list[int]], torch.Tensor]
    copies: Callable[[torch.Tensor, int], torch.Tensor]  # of n equal tensors
    dtypes: str  # a word for those that are refused, or nothing


_REDUCTIONS = {
    "sum": _Reduction(lambda x, dims: x.sum(dims, dtype=x.dtype), lambda x, n: x * n, "bool"),
    "mean": _Reduction(lambda x, dims: x.mean(dims), lambda x, n: x, "integer"),
    "max": _Reduction(lambda x, dims: x.amax(dims), lambda x, n: x, ""),
    "min": _Reduction(lambda x, dims: x.amin(dims), lambda x, n: x, ""),
}


def _reduction(op: str, tensor: torch.Tensor) -> _Reduction:
    if op not in _REDUCTIONS:
        raise ShardingError(
            f"there is no reduction {op!r}. Expected one of {', '.join(_REDUCTIONS)}. "
            'Write op="sum".'
        )
    found = _REDUCTIONS[op]
    real = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    if found.dtypes and (tensor.dtype == torch.bool or (found.dtypes == "integer" and not real)):
        raise ShardingError(
            f"the {op} of tensors of dtype {tensor.dtype} is not defined. Expected numbers"
            f"{' with a fraction' if found.dtypes == 'integer' else ''}. Convert the tensor first: "
            "tensor.float()."
        )
    return found


def _region(tensor: torch.Tensor | None, axis: Axes) -> tuple[Region, tuple[str, ...]]:
    region = current_region()
    if region is None:
        raise ShardingError(
            "it was called outside of a manual region. Expected a call from a function that "
            "spmdx.shard_map runs. Outside, tensors are global: use torch's own functions."
        )
    if tensor is not None and not (
        isinstance(tensor, torch.Tensor) and tensor.device.type == "spmdx"
    ):
        what = f"on device {tensor.device}" if isinstance(tensor, torch.Tensor) else repr(tensor)
        raise ShardingError(
            f"the first argument is {what}. Expected a tensor on device 'spmdx'. "
            'Move it there first: tensor.to("spmdx").'
        )
    axes = (axis,) if isinstance(axis, str) else tuple(axis)
    for name in axes:
        if name not in region.axes:
            raise ShardingError(
                f"{name!r} is no manual axis here. Expected one of "
                f"{', '.join(map(repr, region.axes))}. Name an axis of spmdx.shard_map's mesh."
            )
    if len(set(axes)) != len(axes) or not axes:
        raise ShardingError(
            f"the axes are {axes!r}. Expected at least one, and none twice. Write "
            f"{region.axes[0]!r}."
        )
    return region, axes


def _local_dim(tensor: torch.Tensor, dim: int, divisor: int = 1) -> int:
    rank = tensor.dim()
    if not -rank <= dim < rank:
        raise ShardingError(
            f"there is no dim {dim} in a local tensor of shape {tuple(tensor.shape)}. "
            f"Expected a dim from {-rank} to {rank - 1}. Mind that shapes are local here."
        )
    dim %= rank
    if tensor.shape[dim] % divisor:
        raise ShardingError(
            f"dim {dim} of the local shape {tuple(tensor.shape)} is not a multiple of the "
            f"{divisor} devices that share it. Expected equal parts. Pad the tensor to "
            f"{math.ceil(tensor.shape[dim] / divisor) * divisor} first."
        )
    return dim


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
        region, axes = _region(tensor, axis)
        reduction = _reduction(op, tensor)
    return reach(region, tensor, _pinned(lambda x: _reduce(x, axes, reduction)))


def _reduce(x: Unfolded, axes: Sequence[str], reduction: _Reduction) -> Unfolded:
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
        region, axes = _region(tensor, axis)
        dim = _local_dim(tensor, dim)

    def body(x: Unfolded) -> Unfolded:
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
        region, axes = _region(tensor, axis)
        reduction = _reduction(op, tensor)
        dim = _local_dim(tensor, dim, math.prod(region.mesh.shape()[name] for name in axes))

    def body(x: Unfolded) -> Unfolded:
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
        region, (axis,) = _one_axis(tensor, axis)
        split_dim = _local_dim(tensor, split_dim, region.mesh.shape()[axis])
        concat_dim = _local_dim(tensor, concat_dim)
    sender = object()

    def body(x: Unfolded) -> Unfolded:
        return x.vary(axis).rename(axis, sender).split(axis, split_dim).join(sender, concat_dim)

    return reach(region, tensor, _pinned(body))


def _one_axis(tensor: torch.Tensor | None, axis: str) -> tuple[Region, tuple[str, ...]]:
    if not isinstance(axis, str):
        raise ShardingError(f"the axis is {axis!r}. Expected the name of one axis. Write 'data'.")
    return _region(tensor, axis)


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
        region, (axis,) = _one_axis(tensor, axis)
        sources = _sources(pairs, region.mesh.shape()[axis], axis)
    return reach(region, tensor, _pinned(lambda x: x.vary(axis).permute(axis, sources)))


def _sources(pairs: Sequence[tuple[int, int]], size: int, axis: str) -> list[int]:
    """By receiver, who sends to it; -1 where nobody does."""
    sources = [-1] * size
    for sender, receiver in pairs:
        if not (0 <= sender < size and 0 <= receiver < size):
            raise ShardingError(
                f"the pair ({sender}, {receiver}) names a device that axis {axis!r} of size "
                f"{size} lacks. Expected coordinates from 0 to {size - 1}. Count along the axis."
            )
        if sources[receiver] >= 0 or sender in sources:
            raise ShardingError(
                f"the pair ({sender}, {receiver}) repeats a sender or a receiver. Expected each "
                "at most once. Use all_gather to send to many."
            )
        sources[receiver] = sender
    return sources


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
        region, (axis,) = _one_axis(None, axis)
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
        region, (axis,) = _one_axis(None, axis)
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
