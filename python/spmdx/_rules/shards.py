# SPDX-License-Identifier: Apache-2.0
"""Shards: a tensor handed out to shards as a layout says, and what they hold together."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

Layout = dict[str, Any]


def shards_of(value: torch.Tensor, layout: Layout) -> list[torch.Tensor]:
    """What every shard of a layout holds; parts of a sum are unequal, so that errors show."""
    parts = parts_of(value, layout["reduction"], max(layout["parts"]) + 1)
    pieces = zip(layout["boxes"], layout["parts"], strict=True)
    return [held(parts[part], box) for box, part in pieces]


def held(value: torch.Tensor, box: Sequence[tuple[int, int]]) -> torch.Tensor:
    """What a device holds; a number stays a number, which a copy of it would not be."""
    if not box:
        return value
    return within(value, box).clone(memory_format=torch.contiguous_format)


def within(value: torch.Tensor, box: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The part of a tensor in a box."""
    for dim, (start, extent) in enumerate(box):
        value = value.narrow(dim, start, extent)
    return value


def parts_of(value: torch.Tensor, reduction: str, count: int) -> list[torch.Tensor]:
    """Different tensors that reduce to ``value``."""
    if count == 1:
        return [value]
    if reduction == "sum":
        return summands(value, count)
    if reduction == "prod":
        ones = torch.ones_like(value)
        halves = torch.where(divisible(value), 0.5, ones) if value.is_floating_point() else ones
        return [
            value / halves if value.is_floating_point() else value,
            halves,
            *[ones] * (count - 2),
        ]
    owner = torch.arange(value.numel()).reshape(value.shape) % count
    return [torch.where(owner == part, value, dominated(value, reduction)) for part in range(count)]


def summands(value: torch.Tensor, count: int) -> list[torch.Tensor]:
    """0.6 of a number, 0.4 of it in halves, and a wave of it from one part to the next.

    Equal or proportional parts would hide what is counted twice or compared too early.
    """
    none = torch.zeros_like(value)
    if value.dtype == torch.bool:
        return [value] + [none] * (count - 1)
    shared = divisible(value)
    wave = 1.5 * torch.sin(3.0 * torch.arange(value.numel())).reshape(value.shape)
    left, parts = value, []
    for part in range(count - 1):
        taken = (left * ((0.5 if part else 0.6) + wave)).to(value.dtype)
        parts.append(torch.where(shared, taken, none if part else value))
        left = torch.where(shared, left - taken, none)
    return [*parts, left]


def divisible(value: torch.Tensor) -> torch.Tensor:
    """Which numbers have larger shares: not those at the ends of the range, as masks are."""
    if not (value.is_floating_point() or value.is_complex()):
        return torch.ones_like(value, dtype=torch.bool)
    return value.abs() < torch.finfo(value.dtype).max / 16


def dominated(value: torch.Tensor, reduction: str) -> torch.Tensor:
    """What the others hold beside the one that has the maximum, minimum, ``any`` or ``all``."""
    if value.dtype == torch.bool:
        return torch.full_like(value, reduction in ("min", "all"))
    below = reduction == "max"
    if value.is_floating_point():
        return value - 1 if below else value + 1
    limits = torch.iinfo(value.dtype)
    return torch.full_like(value, limits.min if below else limits.max)


REDUCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "any": torch.logical_or,
    "all": torch.logical_and,
}


def joined(shards: Sequence[torch.Tensor], layout: Layout, like: torch.Tensor) -> torch.Tensor:
    """The value that these shards hold together."""
    result = torch.empty_like(like, memory_format=torch.contiguous_format)
    by_box: dict[Any, torch.Tensor] = {}
    for shard, box in zip(shards, layout["boxes"], strict=True):
        known = by_box.get(box)
        reduce = REDUCTIONS.get(layout["reduction"])
        by_box[box] = shard if known is None or reduce is None else reduce(known, shard)
    for box, shard in by_box.items():
        within(result, box).copy_(shard)
    return result
