# SPDX-License-Identifier: Apache-2.0
"""Steps of exchanges between processes, to be measured."""

from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotate, handle_for
from spmdx._annotate.mesh import Mesh

TURNS = 4  # exchanges of a step, each of which waits for the one before
_LEAST_STEPS, _MOST_STEPS = 5, 50  # of a round
_BYTES = 1 << 25  # that a device receives in one, as far as the number of steps allows

Step = Callable[[], None]


def in_pieces(mesh: Mesh, received: int) -> Step:
    """A step in which each device receives so many bytes from the others of "x", again and again.

    The value is of rows and of columns in turn: an all_to_all.
    """
    size = mesh.shape()["x"]
    columns = max(1, received // (4 * (size - 1)))

    def turned(value: torch.Tensor, turn: int) -> torch.Tensor:
        return laid(value * 1.0, mesh, (("x", None), (None, "x"))[turn % 2])

    return _exchanging(mesh, [size, size * columns], turned)


def whole(mesh: Mesh, received: int) -> Step:
    """A step in which each device receives so many bytes from one other, again and again.

    The value's rows move on by one: a collective_permute.
    """
    size = mesh.shape()["x"]

    def moved_on(value: torch.Tensor, _: int) -> torch.Tensor:
        return laid(value.roll(1, 0) * 1.0, mesh, ("x", None))

    return _exchanging(mesh, [size, max(1, received // 4)], moved_on)


def gathers(mesh: Mesh, received: int) -> Step:
    """A step in which each device receives so many bytes from the others, again and again.

    The value's rows are put together along "x": an all_gather.
    """
    size = mesh.shape()["x"]

    def gathered(value: torch.Tensor, _: int) -> torch.Tensor:
        return laid(laid(value * 1.0, mesh, (None, None)) * 1.0, mesh, ("x", None))

    return _exchanging(mesh, [size, max(1, received // (4 * (size - 1)))], gathered)


def sums(mesh: Mesh, summed: int, beside: Callable[[], object] | None = None) -> Step:
    """A step in which devices sum so many bytes over "x", again and again: an all_reduce.

    ``beside`` computes while one goes on.
    """
    shape, kept = [mesh.shape()["x"], summed // 4], list[object]()

    def added_up(value: torch.Tensor, turn: int) -> torch.Tensor:
        total = laid(value.sum(0), mesh, (None,))
        if beside is not None:
            kept[turn - 1 :] = [beside()]  # what nobody holds is not computed
        return laid(total.expand(shape) * 0.5, mesh, ("x", None))

    return _exchanging(mesh, shape, added_up)


def _exchanging(
    mesh: Mesh, shape: list[int], moved: Callable[[torch.Tensor, int], torch.Tensor]
) -> Step:
    rows = laid(torch.ones(shape).to("spmdx"), mesh, ("x", None))

    def step() -> None:
        value = rows
        for turn in range(TURNS):
            value = moved(value, turn + 1)
        value = value + 1.0  # which reads the last one
        finish()

    return step


def laid(value: torch.Tensor, mesh: Mesh, spec: tuple) -> torch.Tensor:
    """This value, which has to lie so."""
    annotate(value, handle_for(value, mesh, spec))
    return value


def finish() -> None:
    """Run what is recorded, and wait for it."""
    _C.flush(awaited=True)
    _C.wait()


def often(received: int) -> int:
    """Steps of a round, each exchange of which gives a device so many bytes."""
    return max(_LEAST_STEPS, min(_MOST_STEPS, _BYTES // (received * TURNS)))


def an_exchange_ns(ran: list[dict[str, Any]]) -> float:
    """From the first of a step to its end, less what is computed meanwhile."""
    moved = [r for r in ran if r["wire"]]
    if not moved:  # of pairs: this process is left over, and most are not
        return 0.0
    began = min(r["start_ns"] for r in moved)
    computed = [r["longest_ns"] for r in ran if not r["wire"] and r["start_ns"] >= began]
    return (max(r["end_ns"] for r in ran) - began - sum(computed)) / len(moved)
