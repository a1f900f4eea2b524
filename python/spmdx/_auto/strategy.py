# SPDX-License-Identifier: Apache-2.0
"""A strategy: what is said of a program so that it runs on many devices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from spmdx._annotate.annotation import annotate, handle_for
from spmdx._annotate.mesh import Mesh
from spmdx._auto.unmarked import move, unmark_program
from spmdx._base.own_devices import NAMES
from spmdx._modules.marking import mark_all, specs_by_pattern
from spmdx._modules.zero import zero_as
from spmdx._pipelines.held import tensors_of
from spmdx._pipelines.pipeline import pipeline
from spmdx.errors import ShardingError

FAMILIES = {"model": "tensor", "pipe": "pipeline"}  # by axis, where it has another name


@dataclass(frozen=True)
class Strategy:
    """How a program is laid over devices.

    Attributes:
        data, model, pipe, context: sizes of the axes of these names. "context" cuts dim 1 of a
            batch, which is a sequence; a search tries 1 alone.
        microbatches: into how many a batch is split.
        zero: the stage of ZeRO along ``"data"``; 0: none.
        schedule: of the pipeline; empty where there is none.
        chunks: stages that a coordinate of ``"pipe"`` holds.
        plan: from patterns of names to specs of the parameters that ``"model"`` cuts.
        sequence: whether ``"model"`` cuts dim 1 of a batch.
        stages: of a pipeline: the modules with which the second and later stages begin, or by name
            of a parameter or buffer its stage.
    """

    data: int = 1
    model: int = 1
    pipe: int = 1
    microbatches: int = 1
    zero: int = 0
    schedule: str = ""
    chunks: int = 1
    plan: Mapping[str, tuple] | None = None
    sequence: bool = False
    stages: Sequence[str] | Mapping[str, int] = ()
    context: int = 1

    @property
    def devices(self) -> int:
        """How many it is for."""
        return math.prod(self.axes.values())

    @property
    def family(self) -> str:
        """``"data"``, ``"tensor"``, ``"pipeline"``, ``"context"``, or ``"hybrid"`` of several.

        Of one device it is ``"single"``.
        """
        used = [name for name, size in self._sizes().items() if size > 1]
        return FAMILIES.get(used[0], used[0]) if len(used) == 1 else "hybrid" if used else "single"

    @property
    def axes(self) -> dict[str, int]:
        """The axes of the mesh and their sizes, those of one device left out."""
        return {name: size for name, size in self._sizes().items() if size > 1} or {"data": 1}

    def _sizes(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("pipe", "data", "context", "model")}

    def mesh(self) -> Mesh:
        """The mesh, of devices from 0 on."""
        return Mesh(range(self.devices), tuple(self.axes.values()), tuple(self.axes))

    def mark(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, mesh: Mesh
    ) -> None:
        """Marks a model and what its optimizer holds, in place of what they are marked with.

        Values stay, those of the optimizer's state, too; they lie as is said from now on.
        """
        lying = unmark_program(model, optimizer)
        self.mark_unmarked(model, optimizer, mesh)
        move(lying, model, optimizer, mesh)

    def mark_unmarked(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, mesh: Mesh
    ) -> None:
        """Marks what is not marked, and does not lie on devices."""
        if self.plan:
            tensors = tensors_of(model)
            mark_all(tensors, mesh, specs_by_pattern(self.plan, tensors))
        if self.pipe > 1:
            pipeline(model, mesh, "pipe", self.stages, self.schedule, self.chunks)
        if self.zero and optimizer is not None:
            zero_as(model, optimizer, mesh, "data", self.zero, 0)

    def batch_spec(self, dims: int) -> tuple[str | tuple[str, ...] | None, ...]:
        """The partition spec of a tensor of a batch with so many dims."""
        spec: list[str | tuple[str, ...] | None] = [None] * dims
        if self.data > 1 and dims:
            spec[0] = "data"
        along = ("context",) * (self.context > 1) + ("model",) * self.sequence
        if along and dims > 1:
            spec[1] = along[0] if len(along) == 1 else along
        return tuple(spec)

    def mark_batch(self, batch: Any, mesh: Mesh) -> Any:
        """A microbatch on the device and marked, in the containers that it came in."""

        def marked(tensor: Any) -> Any:
            if not isinstance(tensor, torch.Tensor):
                return tensor
            moved = tensor if tensor.device.type in NAMES else tensor.to("spmdx")
            spec = self.batch_spec(moved.dim())
            return annotate(moved, handle_for(moved, mesh, spec)) if any(spec) else moved

        return tree_map(marked, batch)


def split(batch: Any, count: int) -> list[Any]:
    """A batch in so many microbatches of equal size, along dim 0 of its tensors.

    Args:
        batch: tensors with samples along dim 0, alone or in containers. Tensors without dims, and
            what is no tensor, are the same in each microbatch.
        count: of microbatches, at least 1.

    Returns:
        The microbatches, in containers like those of the batch.

    Raises:
        ShardingError: tensors of different numbers of samples, none, or a number of samples that
            ``count`` does not divide; a count that is none.

    Example:
        >>> import torch, spmdx
        >>> [part["x"].shape for part in spmdx.auto.split({"x": torch.ones(6, 4), "scale": 2}, 3)]
        [torch.Size([2, 4]), torch.Size([2, 4]), torch.Size([2, 4])]
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ShardingError(
            f"a batch is split into {count!r} microbatches. Expected a number, at least 1. Write 2."
        )
    sizes = [tensor.shape[0] for tensor in tensors_in(batch)]
    if len({*sizes}) != 1 or sizes[0] % count:
        raise ShardingError(
            f"the batch has tensors of {sorted(sizes)} samples. Expected equally many in each, "
            f"and a multiple of {count}. Pass such a batch."
        )
    size = sizes[0] // count

    def part(value: Any, at: int) -> Any:
        has_samples = isinstance(value, torch.Tensor) and value.dim()
        return value[at * size : (at + 1) * size] if has_samples else value

    return [tree_map(lambda value, at=at: part(value, at), batch) for at in range(count)]


def tensors_in(batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch that have samples, in nested containers."""
    return [t for t in tree_leaves(batch) if isinstance(t, torch.Tensor) and t.dim()]
