# SPDX-License-Identifier: Apache-2.0
"""The cuts of a pipeline as they are chosen: when the model is first called."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import is_state
from spmdx._annotate.mesh import Mesh
from spmdx._base.own_devices import NAMES
from spmdx._modules.marking import require_on_device
from spmdx._modules.stages import put_on, staged
from spmdx._pipelines.costs import chain_of, layers_of
from spmdx._pipelines.held import tensors_of
from spmdx._pipelines.kept import planned_alone
from spmdx._pipelines.trial import Trial
from spmdx._pipelines.units import units_of
from spmdx._program.memory_limit import without_memory_limit
from spmdx.errors import ShardingError, naming

MICROBATCHES_OF_A_RANK = 4  # how many a step is taken to have, before any has run


@dataclass
class Choice:
    """A hook that chooses the cuts and removes itself; it goes with the model into copies.

    Attributes:
        mesh, axis: along which the stages lie.
        schedule: its name or its table.
        chunks: stages of each coordinate.
        own: the parameters and buffers by name, in whose place a call may have others.
        planned: it was made where nothing runs, and ends there.
    """

    mesh: Mesh
    axis: str
    schedule: str
    chunks: int
    own: dict[str, torch.Tensor] = field(default_factory=dict)
    planned: bool = field(default_factory=_C.planning_only)
    _busy: bool = False

    def put_on(self, model: torch.nn.Module) -> None:
        take_off(model)
        self.own = tensors_of(model)
        model.register_forward_pre_hook(self, prepend=True, with_kwargs=True)

    def __call__(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self.planned and not _C.planning_only():
            take_off(model)
            return
        if self._busy or (_C.planning_only() and self._has_chosen(model)):
            return
        held = tensors_of(model).values()
        if held and all(tensor.device.type not in NAMES for tensor in held):
            return  # it is used elsewhere, for a while
        self._busy = True
        try:
            # What was recorded before, with a model that is not cut yet, ends for our sake.
            with naming("pipeline"), without_memory_limit() as limit:
                self._choose(model, args, kwargs, limit)
        finally:
            self._busy = False
        if not _C.planning_only():  # after which stages are what they were before
            take_off(model)

    def _has_chosen(self, model: torch.nn.Module) -> bool:
        """Whether all that the model holds has a stage."""
        known = [_C.annotation(tensor) for tensor in tensors_of(model).values()]
        return all(at is not None and at.place is not None for at in known)

    def _choose(
        self, model: torch.nn.Module, args: Any, kwargs: Any, memory_limit: int | None
    ) -> None:
        ranks = self.mesh.shape()[self.axis]
        tensors = tensors_of(model)
        _require_no_transform(tensors)
        require_on_device(tensors)
        units = units_of(model, ranks * self.chunks)
        trial = Trial(model, units)
        with planned_alone(model, (args, kwargs)), self._on_one_stage(tensors):
            try:
                trial.run(args, kwargs)
            except ShardingError as error:
                raise _unplanned(error) from error
            chain = chain_of(tensors, model, units, trial)
            if not chain.names:
                raise _none_ran()
            layers = layers_of(trial, tensors, chain, self.mesh, self.axis)
            trial.calls.clear()
        first = _C.choose_cuts(
            layers,
            chain.names,
            self.schedule,
            ranks,
            MICROBATCHES_OF_A_RANK * ranks,
            memory_limit,
        )
        stages = {n: sum(p <= chain.of_tensor[n] for p in first) - 1 for n in tensors}
        put_on(tensors, self.mesh, stages, self.axis, self.schedule)
        self._put_own_on(model, {id(tensor): stages[n] for n, tensor in tensors.items()})
        if _C.planning_only():
            _C.flush()  # where nothing lies yet, the trial's stage is no place to be sent from

    def _put_own_on(self, model: torch.nn.Module, stages: dict[int, int]) -> None:
        """Puts the model's own tensors where those are that the call has in their place.

        ``stages`` are by id of the latter, as torch.func.functional_call gives them.
        """
        now: dict[str, torch.Tensor] = {**dict(model.named_parameters(remove_duplicate=False))}
        now |= dict(model.named_buffers(remove_duplicate=False))
        own = {n: t for n, t in self.own.items() if n in now and t is not now[n]}
        at = {n: stages[id(now[n])] for n in own}
        put_on(own, self.mesh, at, self.axis, self.schedule)

    @contextlib.contextmanager
    def _on_one_stage(self, tensors: dict[str, torch.Tensor]) -> Iterator[None]:
        """A block in which all lies on the first stage: plans are those of the devices of one."""
        before = [_C.annotation(tensor) for tensor in tensors.values()]
        for (name, tensor), known in zip(tensors.items(), before, strict=True):
            # A table would be for other microbatches.
            handle = staged(tensor, self.mesh, 0, self.axis, name).scheduled("")
            _C.annotate(tensor, handle, is_state(tensor))
            if known is not None and known.place is not None:
                with torch.no_grad():
                    tensor.zero_()  # its values, which lie on another stage, are not sent
        _C.flush()
        try:
            yield
        finally:
            for tensor, known in zip(tensors.values(), before, strict=True):
                _C.annotate(tensor, known, is_state(tensor))


def _require_no_transform(tensors: dict[str, torch.Tensor]) -> None:
    """Raises ShardingError within a transform of torch.func, but for vmap of the inputs alone."""
    functorch = torch._C._functorch
    kinds = {layer.key() for layer in functorch.get_interpreter_stack() or []}
    if kinds <= {functorch.TransformType.Vmap}:
        if not any(map(functorch.is_functorch_wrapped_tensor, tensors.values())):
            return
    raise ShardingError(
        "cuts are chosen by a plan of the first call, and that is within a transform of "
        "torch.func. Expected a first call outside of it, whose gradients can be planned. Name "
        "the cuts, as cuts=['layers.4'], or call the model once before."
    )


def _none_ran() -> ShardingError:
    return ShardingError(
        "cuts are chosen among the modules within the model that its first call runs, and it ran "
        "none that holds a parameter or a buffer. Expected a model of layers. Call the model whose "
        "forward calls them, or mark tensors by spmdx.mark_stage."
    )


def _unplanned(error: ShardingError) -> ShardingError:
    said = str(error).partition(". ")[0].removesuffix(".")
    return ShardingError(
        f"cuts are chosen by a plan of the first call, and that cannot be planned: {said}. "
        "Expected a forward pass that reads no values of tensors. Name the cuts, as "
        "cuts=['layers.4']."
    )


def take_off(model: torch.nn.Module) -> None:
    """Removes what waits to choose the cuts of ``model``."""
    for key, hook in list(model._forward_pre_hooks.items()):
        if isinstance(hook, Choice):
            del model._forward_pre_hooks[key]
            model._forward_pre_hooks_with_kwargs.pop(key, None)
