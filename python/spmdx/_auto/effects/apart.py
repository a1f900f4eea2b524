# SPDX-License-Identifier: Apache-2.0
"""A block in which a program is planned in many ways, and behind which it is as it was."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import is_state
from spmdx._annotate.classes import plain_class
from spmdx._auto.effects.reach import MOST, Reach
from spmdx._auto.parts.laid import lay
from spmdx._modules.zero import out_of_force
from spmdx._pipelines.held import tensors_of
from spmdx._pipelines.kept import planned_alone
from spmdx._pipelines.put_back import PutBack, cpu_memory
from spmdx._pipelines.reached import reached_from, tensors_among
from spmdx.errors import warn

SMALL = 1 << 20  # bytes of a tensor on the CPU, which is as before behind each call, not at the end


@contextlib.contextmanager
def apart(
    step: Callable[..., Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> Iterator["Effects"]:
    """What the block does to the model, its optimizer and what the step reaches is undone.

    Gives what calls the step there.
    """
    reach = Reach(step, () if optimizer is None else (optimizer.state,))
    own = {} if optimizer is None else vars(optimizer)
    optimizers = [*reach.optimizers] if optimizer is None else [optimizer, *reach.optimizers]
    tensors = tensors_among(reached_from(model, (reach.values, own)))
    with out_of_force(optimizers), planned_alone(model, (reach.values, own)), _plain(tensors):
        if optimizer is not None:
            optimizer.state.clear()
        model.zero_grad(set_to_none=True)
        _lay_others(tensors, model)
        yield Effects(step, reach, model)


@contextlib.contextmanager
def _plain(tensors: list[torch.Tensor]) -> Iterator[None]:
    """A block in which tensors have no annotations, and behind which they have those of before."""
    lazy = [t for t in tensors if _C.is_lazy(t)]
    before = [(t, type(t), _C.annotation(t)) for t in lazy]
    for tensor, kind, known in before:
        if known is not None:
            _C.annotate(tensor, None, is_state(tensor))
        tensor.__class__ = plain_class(kind)
    try:
        yield
    finally:
        for tensor, kind, known in before:
            _C.annotate(tensor, known, is_state(tensor))
            tensor.__class__ = kind


def _lay_others(tensors: list[torch.Tensor], model: torch.nn.Module) -> None:
    """What lies on devices, and is not the model's, lies whole on one for the plans."""
    own = {id(t) for t in tensors_of(model).values()}
    others = [t for t in tensors if _C.is_lazy(t) and id(t) not in own]
    lay([t for t in others if _C.sharding_of(t) and not (t._is_view() or t.is_inference())])


class Effects:
    """Calls a step, and puts back what it changed, but for tensors of the model."""

    def __init__(self, step: Callable[..., Any], reach: Reach, model: torch.nn.Module):
        self._step, self._places, self._is_all = step, reach.places, reach.is_all
        self._changed: set[str] = set()  # names
        own = {id(t) for t in tensors_of(model).values()}
        others = [t for t in tensors_among(reach.values) if id(t) not in own]
        self._leaves = [t for t in others if t.is_leaf]
        self._small = [t for t in others if t.device.type == "cpu" and t.nbytes <= SMALL]
        self._instead: list[Any] = []  # what was put away: a plan of it may not be made yet

    def call(self, *args: Any) -> Any:
        """The step once."""
        self._instead = []
        before = [place.read() for place in self._places]
        gradients = [tensor.grad for tensor in self._leaves]
        memories: list[PutBack] = list(cpu_memory(self._small))
        try:
            return self._step(*args)
        finally:
            self._put_back(before, gradients)
            for put_back in memories:
                put_back()

    def _put_back(self, before: list[list[Any]], gradients: list[torch.Tensor | None]) -> None:
        for place, held in zip(self._places, before, strict=True):
            instead = place.put_back(held)
            if instead:
                self._instead += instead
                self._changed |= {place.name} - {""}
        for tensor, gradient in zip(self._leaves, gradients, strict=True):
            if tensor.grad is not gradient:
                self._instead.append(tensor.grad)
                tensor.grad = gradient

    def tell(self) -> None:
        """Warns of what the step changes beside the model and its optimizer, if it does."""
        if self._changed:
            warn(
                f"search: the step changes {', '.join(sorted(self._changed))}. Expected one that "
                "changes the model and its optimizer alone, since it is called many times to be "
                "planned. What it changed there is as before; do it outside of the step, or mind "
                "what else it does."
            )
        if not self._is_all:
            warn(
                f"search: the names of the step reach more than {MOST:,} things. Expected fewer: "
                "of those that are further away, what the step changes stays changed. Keep large "
                "lists where the step does not name them."
            )
