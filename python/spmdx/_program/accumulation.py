# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation: the microbatches of a batch in one step, and what that saves."""

from typing import Any

import torch

import spmdx._C as _C
from spmdx._program.step import held
from spmdx.errors import ShardingError, naming


class Accumulation:
    """A block whose microbatches are one step; :func:`accumulate` makes one.

    Attributes:
        microbatches: how many ended in the block.
        bytes_apart: what a device receives for the first microbatch as a step of its own, times
            their number; None where that is not measured.
        bytes_together: what a device receives for the block as a whole, its gradients reduced at
            the end of it; None where that is not measured.
        peak_apart: bytes a device holds at most in a step of the first microbatch alone, by plan.
        peak_together: the same for the block as a whole.
        ran_inside: whether a step ran within the block, because a value was read there.
    """

    def __init__(self, module: torch.nn.Module, measure: bool):
        self._module, self._measure = module, measure
        self._begin()

    def _begin(self) -> None:
        counts = _C.counters()
        self._ops, self._reads = counts["ops_recorded"], counts["implicit_syncs"]
        self._first: dict[str, Any] | None = None
        self.microbatches = 0
        self.bytes_apart: int | None = None
        self.bytes_together: int | None = None
        self.peak_apart: int | None = None
        self.peak_together: int | None = None
        self.ran_inside = False

    @property
    def saved_bytes(self) -> int | None:
        """What a device does not receive, against steps of their own; None if not measured."""
        if self.bytes_apart is None or self.bytes_together is None:
            return None
        return self.bytes_apart - self.bytes_together

    def __enter__(self) -> "Accumulation":
        if self in held:
            with naming("accumulate"):
                raise ShardingError(
                    "the block is open already. Expected a block of its own for each batch. Call "
                    "spmdx.accumulate again."
                )
        self._begin()
        held.append(self)
        return self

    def __exit__(self, kind: type | None, *raised: object) -> None:
        held.remove(self)
        if kind is not None:
            return
        if _C.counters()["ops_recorded"] > self._ops:
            self.end_microbatch()
        self.ran_inside |= _C.counters()["implicit_syncs"] > self._reads
        if self._first is None or self.ran_inside:
            return
        together = self._plan()
        if together is not None:
            self.bytes_apart = self.microbatches * _bytes(self._first)
            self.bytes_together = _bytes(together)
            self.peak_apart, self.peak_together = self._first["peak_bytes"], together["peak_bytes"]

    def __repr__(self) -> str:
        said = f"{self.microbatches} microbatches in one step"
        if self.ran_inside:
            return (
                f"{self.microbatches} microbatches, in several steps: a value was read within the "
                "block, and gradients were reduced then. Read it behind the block."
            )
        if self.saved_bytes is None:
            return f"{said}, not measured"
        return (
            f"{said}: a device receives {self.bytes_together:,} bytes, not {self.bytes_apart:,}; "
            f"it holds {self.peak_together:,} at most, not {self.peak_apart:,}"
        )

    def end_microbatch(self) -> None:
        """What :func:`spmdx.mark_step` does in the block."""
        recorded = _C.counters()["ops_recorded"]
        if recorded == self._ops:  # nothing happened since the last one
            return
        self._ops = recorded
        self.microbatches += 1
        if self.microbatches == 1 and self._measure:
            self._first = self._plan()

    def _plan(self) -> dict[str, Any] | None:
        """What is pending, planned; None where no gradient is."""
        for parameter in self._module.parameters():
            if parameter.grad is not None and _C.is_lazy(parameter.grad):
                return _C.report_pending(parameter.grad)
        return None


def _bytes(report: dict[str, Any]) -> int:
    return sum(one["bytes"] for one in report["collectives"])


def accumulate(module: torch.nn.Module, measure: bool = True) -> Accumulation:
    """A block whose microbatches are one step, so that gradients are reduced once, at its end.

    Each device adds up its own summands of a gradient, as sums of sums may be made in any order;
    they cross devices once, when all microbatches are in. Within the block
    :func:`spmdx.mark_step` ends a microbatch and runs nothing. Losses are divided and the optimizer
    is called as without it. Results are the same up to rounding. One program holds all
    microbatches: it takes longer to plan, and each device holds its summands of whole gradients.

    Args:
        module: whose gradients add up.
        measure: plan the first microbatch alone as well, and say what the block saves. It costs
            planning once for every new shape, and a report for every block.

    Returns:
        The block, which says after its end what it saves (``saved_bytes``, ``print``).

    Raises:
        ShardingError: no module; a block that is open already.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> net = torch.nn.Linear(16, 16, bias=False).to("spmdx")
        >>> with spmdx.accumulate(net) as batch:
        ...     for _ in range(4):
        ...         x = torch.randn(256, 16).to("spmdx")
        ...         _ = spmdx.mark_sharding(x, mesh, ("data", ...))
        ...         (net(x).square().mean() / 4).backward()
        ...         spmdx.mark_step()
        >>> batch.microbatches, batch.bytes_apart, batch.bytes_together
        (4, 7168, 1792)
        >>> spmdx.mark_step()
    """
    with naming("accumulate"):
        if not isinstance(module, torch.nn.Module):
            raise ShardingError(
                f"the first argument is a {type(module).__name__}. Expected a torch.nn.Module. "
                "Pass the model whose gradients add up."
            )
    return Accumulation(module, measure)


__all__ = ["Accumulation", "accumulate"]
