# SPDX-License-Identifier: Apache-2.0
"""What callers of the collectives pass: checked, with a message that says how to mend it."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import torch

from spmdx._annotate.regions import Region, current_region
from spmdx._base.own_devices import NAMES
from spmdx.errors import ShardingError

Axes = str | Sequence[str]


@dataclasses.dataclass(frozen=True)
class Reduction:
    over: Callable[[torch.Tensor, list[int]], torch.Tensor]
    copies: Callable[[torch.Tensor, int], torch.Tensor]  # of n equal tensors
    dtypes: str  # a word for those that are refused, or nothing


REDUCTIONS = {
    "sum": Reduction(lambda x, dims: x.sum(dims, dtype=x.dtype), lambda x, n: x * n, "bool"),
    "mean": Reduction(lambda x, dims: x.mean(dims), lambda x, n: x, "integer"),
    "max": Reduction(lambda x, dims: x.amax(dims), lambda x, n: x, ""),
    "min": Reduction(lambda x, dims: x.amin(dims), lambda x, n: x, ""),
}


def reduction_of(op: str, tensor: torch.Tensor) -> Reduction:
    if not isinstance(op, str) or op not in REDUCTIONS:
        raise ShardingError(
            f"there is no reduction {op!r}. Expected one of {', '.join(REDUCTIONS)}. "
            'Write op="sum".'
        )
    found = REDUCTIONS[op]
    real = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    if found.dtypes and (tensor.dtype == torch.bool or (found.dtypes == "integer" and not real)):
        raise ShardingError(
            f"the {op} of tensors of dtype {tensor.dtype} is not defined. Expected numbers"
            f"{' with a fraction' if found.dtypes == 'integer' else ''}. Convert the tensor first: "
            "tensor.float()."
        )
    return found


def region_of(tensor: torch.Tensor | None, axis: Axes) -> tuple[Region, tuple[str, ...]]:
    region = current_region()
    if region is None:
        raise ShardingError(
            "it was called outside of a manual region. Expected a call from a function that "
            "spmdx.shard_map runs. Outside, tensors are global: use torch's own functions."
        )
    if tensor is not None and not (
        isinstance(tensor, torch.Tensor) and tensor.device.type in NAMES
    ):
        what = f"on device {tensor.device}" if isinstance(tensor, torch.Tensor) else repr(tensor)
        raise ShardingError(
            f"the first argument is {what}. Expected a tensor on device 'spmdx'. "
            'Move it there first: tensor.to("spmdx").'
        )
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
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


def local_dim(tensor: torch.Tensor, dim: int, divisor: int = 1) -> int:
    rank = tensor.dim()
    if not rank:
        raise ShardingError(
            "the local tensor has no dims. Expected at least one. Give it one first: "
            "tensor.reshape(1)."
        )
    if not isinstance(dim, Integral) or not -rank <= dim < rank:
        raise ShardingError(
            f"there is no dim {dim!r} in a local tensor of shape {tuple(tensor.shape)}. "
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


def one_axis(tensor: torch.Tensor | None, axis: str) -> tuple[Region, tuple[str, ...]]:
    if not isinstance(axis, str):
        raise ShardingError(f"the axis is {axis!r}. Expected the name of one axis. Write 'data'.")
    return region_of(tensor, axis)


def _are_pairs(pairs: Any) -> bool:
    return isinstance(pairs, tuple | list) and all(
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and all(isinstance(i, Integral) for i in pair)
        for pair in pairs
    )


def sources_of(pairs: Sequence[tuple[int, int]], size: int, axis: str) -> list[int]:
    """By receiver, who sends to it; -1 where nobody does."""
    sources = [-1] * size
    if not _are_pairs(pairs):
        raise ShardingError(
            f"the pairs are {pairs!r}. Expected (sender, receiver) pairs of ints. Write [(0, 1)]."
        )
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
