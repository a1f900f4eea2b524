# SPDX-License-Identifier: Apache-2.0
"""What exchanges between processes take from computing, measured."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh
from spmdx._machine.exchanges import TURNS, Step, finish, laid, sums
from spmdx._machine.watching import medians

_SUMMED = 1 << 20  # bytes, over devices
_SIDE = 256  # of the products that run beside it
_MOST_PRODUCTS = 64
_STEPS = 10  # of a round


def processor_usage(mesh: Mesh) -> float:
    """Of the time of an exchange along "x", the share for which its devices do not compute.

    It is what exchanges and products take together, beyond the longer of the two, by the shorter
    one. An accelerator is watched one op after the other, so that there it is 0, and not measured.
    """
    if torch.device(_C.shard_device()).type != "cpu":
        return 0.0
    moves = sums(mesh, _SUMMED)
    product = _products(mesh)
    moving, one_of_each = _spans(moves, _computing(lambda: product(1)))
    many = max(1, min(_MOST_PRODUCTS, round(moving / one_of_each)))
    computes = _computing(lambda: product(many))
    both = sums(mesh, _SUMMED, lambda: product(many))
    together, moving, computing = _spans(both, moves, computes)
    more = (together - max(moving, computing)) / min(moving, computing)
    return float(np.clip(more, 0.0, 1.0))


def _products(mesh: Mesh) -> Callable[[int], torch.Tensor]:
    """Computes so many products, one after the other, on each device."""
    size = mesh.shape()["x"]
    rows = laid(torch.ones(size * _SIDE, _SIDE).to("spmdx"), mesh, ("x", None))
    factor = torch.full((_SIDE, _SIDE), 1 / _SIDE).to("spmdx")

    def product(many: int) -> torch.Tensor:
        value = rows
        for _ in range(many):
            value = value @ factor
        return value

    return product


def _computing(product: Callable[[], torch.Tensor]) -> Step:
    def step() -> None:
        kept = [product() for _ in range(TURNS)]
        finish()
        del kept

    return step


def _spans(*steps: Step) -> np.ndarray:
    """Nanoseconds from the first op of a step to the end of its last one: medians."""
    return medians([(step, _STEPS) for step in steps], _span)


def _span(ran: list[dict[str, Any]]) -> int:
    return max(r["end_ns"] for r in ran) - min(r["start_ns"] for r in ran)
