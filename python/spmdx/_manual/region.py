# SPDX-License-Identifier: Apache-2.0
"""Manual regions underneath: a vmap level for each mesh axis, and how ops reach through them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from spmdx._annotate.regions import Region, inside
from spmdx._manual.batched_views import BatchedView
from spmdx.errors import InternalError, ShardingError

Body = Callable[[BatchedView], BatchedView]


class _Task:
    """What is to be done with a tensor once every level of its region is peeled off."""

    def __init__(self, region: Region, body: Body):
        self.region, self.body = region, body
        self.order: list[Any] = []  # levels peeled so far, outermost first
        self.lead: list[Any] = []  # those that are leading dims of the tensor
        self.kept: list[Any] = []  # those that are leading dims of the result

    def peel(self, level: Any, varies: bool) -> None:
        self.order.insert(0, level)
        if varies:
            self.lead.insert(0, level)

    def is_bottom(self) -> bool:
        return all(axis in self.order for axis in self.region.axes)

    def finish(self, tensor: torch.Tensor) -> torch.Tensor:
        region = self.region
        done = self.body(BatchedView(region.mesh, region.axes, tensor, self.lead, self.order))
        self.kept = done.lead
        return done.tensor


class _Reach(torch.autograd.Function):
    """Peels one vmap level off a tensor and calls itself below, until its region's are used up.

    Which level is being peeled is read off the coordinates: each varies on the level of its axis.
    """

    generate_vmap_rule = False

    @staticmethod
    def forward(tensor: torch.Tensor, task: _Task, *coordinates: torch.Tensor) -> torch.Tensor:
        raise InternalError("an op of a manual region ended up outside. This is a bug in spmdx.")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep: the ops below the levels are differentiated as they are."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise ShardingError(
            "a gradient was taken through a collective inside a manual region. Expected it to be "
            "taken outside. Call backward() on what the function of spmdx.shard_map returns."
        )

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Sequence[Any],
        tensor: torch.Tensor,
        task: _Task,
        *coordinates: torch.Tensor,
    ) -> tuple[torch.Tensor, int | None]:
        axes = zip(task.region.axes, in_dims[2:], strict=True)
        level = next((axis for axis, dim in axes if dim is not None), None) or object()
        varies = in_dims[0] is not None
        task.peel(level, varies)
        tensor = tensor.movedim(in_dims[0], 0) if varies else tensor
        down = task.finish if task.is_bottom() else lambda x: _Reach.apply(x, task, *coordinates)
        return down(tensor), 0 if level in task.kept else None


def reach(region: Region, tensor: torch.Tensor, body: Body) -> torch.Tensor:
    """``body`` done to a tensor of the region below its levels; gives a tensor of the region."""
    coordinates = (region.coordinates[axis] for axis in region.axes)
    return _Reach.apply(tensor, _Task(region, body), *coordinates)


def _embedding(
    indices: torch.Tensor, weight: torch.Tensor, *options: Any, **more: Any
) -> torch.Tensor:
    """Rows of a table of the device's own: vmap would look them up in the tables of all devices."""
    if options or any(value not in (None, False, 2.0) for value in more.values()):
        return torch.nn.functional.embedding(indices, weight, *options, **more)
    rows = indices.reshape(-1, 1).expand(-1, weight.shape[1])
    return weight.gather(0, rows).reshape(*indices.shape, weight.shape[1])


class _Rewritten(torch.overrides.TorchFunctionMode):
    """Functions whose vmap rule mixes what belongs to different devices, by ones that do not."""

    table = {torch.nn.functional.embedding: _embedding}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        function = self.table.get(function, function)
        return function(*args, **(kwargs or {}))


# No function in a function: one that calls itself is a cycle, and keeps tensors alive.
def _enter(
    region: Region,
    function: Callable[..., None],
    tensors: Sequence[torch.Tensor],
    leads: Sequence[Sequence[str]],
    own: Sequence[str],
) -> None:
    """Calls ``function`` inside of a vmap level for each axis of ``own``."""
    if not own:
        function(*tensors)
        return
    axis = own[0]

    def one(coordinate: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        region.coordinates[axis] = coordinate
        _enter(region, function, values, leads, own[1:])
        return coordinate

    size = region.mesh.shape()[axis]
    dims = (0, *(0 if axis in lead else None for lead in leads))
    coordinates = torch.arange(0, size, device="spmdx")
    torch.vmap(one, in_dims=dims, randomness="different")(coordinates, *tensors)


def run_levels(
    region: Region,
    function: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    leads: Sequence[Sequence[str]],
    own: Sequence[str],
) -> Any:
    """``function`` of the tensors with their leading dims, ``leads``, turned into vmap levels.

    What it returns must not vary along the axes of ``own``, those that this call adds.
    """
    results: list[Any] = []
    with inside(region), _Rewritten():
        _enter(region, lambda *values: results.append(function(*values)), tensors, leads, own)
    return results[0]
