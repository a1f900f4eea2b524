# SPDX-License-Identifier: Apache-2.0
"""A value of a manual region as the global tensor that it is: mesh axes as leading dims."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.spec import to_handle


class _PermuteRows(torch.autograd.Function):
    """Its gradient takes every part back to where it came from."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, dim: int, sources: tuple[int, ...]) -> torch.Tensor:
        ctx.dim, ctx.sources = dim, sources
        return _C.permute_rows(tensor, dim, list(sources))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        back = [-1] * len(ctx.sources)
        for receiver, sender in enumerate(ctx.sources):
            if sender >= 0:
                back[sender] = receiver
        return permute_rows(grad, ctx.dim, tuple(back)), None, None


def permute_rows(tensor: torch.Tensor, dim: int, sources: tuple[int, ...]) -> torch.Tensor:
    """Part i of a dim becomes part sources[i], or zeros where that is negative.

    REQUIRES: no source twice.
    """
    if _C.is_lazy(tensor):
        return _PermuteRows.apply(tensor, dim, sources)
    parts = [  # somebody else's vmap or grad is around it
        tensor.select(dim, i) if i >= 0 else torch.zeros_like(tensor.select(dim, 0))
        for i in sources
    ]
    return torch.stack(parts, dim)


@dataclasses.dataclass(frozen=True)
class BatchedView:
    """One local tensor a device, all in one: leading dims for the axes along which they differ.

    Attributes:
        mesh: the mesh of the region.
        axes: the axes that are manual in it.
        tensor: dims of ``lead``, then those of the local tensor.
        lead: the axes (or levels of somebody else's vmap) that are leading dims, in ``order``.
        order: all that there are, outermost first.
    """

    mesh: Mesh
    axes: tuple[str, ...]
    tensor: torch.Tensor
    lead: list[Any]
    order: list[Any]

    def _with(self, tensor: torch.Tensor, lead: list[Any]) -> "BatchedView":
        return dataclasses.replace(self, tensor=tensor, lead=lead)

    def _place(self, axis: str) -> tuple[int, list[Any]]:
        """Where ``axis`` goes among the leading dims, and what they are then."""
        longer = [level for level in self.order if level in self.lead or level == axis]
        return longer.index(axis), longer

    def vary(self, axis: str) -> "BatchedView":
        """With ``axis`` among the leading dims: copies where nothing differs along it."""
        if axis in self.lead:
            return self
        place, lead = self._place(axis)
        shape = list(self.tensor.shape)
        shape.insert(place, self.mesh.shape()[axis])
        return self._with(self.tensor.unsqueeze(place).expand(shape), lead)

    def split(self, axis: str, dim: int) -> "BatchedView":
        """Every device along ``axis`` gets its part of a local dim. REQUIRES: sizes divide."""
        at = len(self.lead) + dim
        parts = self.tensor.unflatten(at, (self.mesh.shape()[axis], -1))
        place, lead = self._place(axis)
        return self._with(parts.movedim(at, place), lead)

    def join(self, axis: Any, dim: int) -> "BatchedView":
        """The parts along ``axis``, one behind the other in a local dim."""
        place = self.lead.index(axis)
        lead = [level for level in self.lead if level != axis]
        at = len(lead) + dim
        return self._with(self.tensor.movedim(place, at).flatten(at, at + 1), lead)

    def reduce(
        self, axes: Sequence[str], over: Callable[[torch.Tensor, list[int]], torch.Tensor]
    ) -> "BatchedView":
        """With leading dims reduced away by ``over``."""
        if not axes:
            return self
        places = [self.lead.index(axis) for axis in axes]
        return self._with(over(self.tensor, places), [a for a in self.lead if a not in axes])

    def permute(self, axis: str, sources: Sequence[int]) -> "BatchedView":
        """Part i of a leading dim becomes part sources[i], or zeros where that is negative."""
        rows = permute_rows(self.tensor, self.lead.index(axis), tuple(sources))
        return self._with(rows, self.lead)

    def rename(self, axis: str, level: Any) -> "BatchedView":
        """With another name for a leading dim, so that there is room for a new ``axis``."""
        place = self.order.index(axis)
        order = [*self.order[: place + 1], level, *self.order[place + 1 :]]
        lead = [level if known == axis else known for known in self.lead]
        return dataclasses.replace(self, lead=lead, order=order)

    def pinned(self) -> "BatchedView":
        """Itself, held where the region has it: every device its own part.

        So is its gradient where no axis is missing; elsewhere that is a sum over devices, which
        the planner places. Axes of the mesh that are not manual are the planner's: nothing is held.
        """
        if len(self.axes) < self.mesh.ndim or not _C.is_lazy(self.tensor):
            return self
        spec = [axis if axis in self.axes else None for axis in self.lead]
        spec += [None] * (self.tensor.dim() - len(spec))
        handle = to_handle(tuple(spec), self.mesh, self.tensor, "tensor")

        def pin(grad: torch.Tensor) -> torch.Tensor:
            grad = grad.clone()
            _C.annotate(grad, handle, False)
            return grad

        _C.annotate(self.tensor, handle, False)
        if self.tensor.requires_grad and all(axis in self.lead for axis in self.axes):
            self.tensor.register_hook(pin)
        return self
