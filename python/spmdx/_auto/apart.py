# SPDX-License-Identifier: Apache-2.0
"""A block in which a program is planned in many ways, and behind which it is as it was."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import is_state
from spmdx._auto.effects import Effects
from spmdx._pipelines.held import tensors_of
from spmdx._pipelines.kept import planned_alone
from spmdx.errors import warn


@contextlib.contextmanager
def apart(
    step: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> Iterator[None]:
    """What the block does to the model, its optimizer and what the step names is undone.

    A step that changes something of its own hears of it.
    """
    effects = Effects(step)
    own = {} if optimizer is None else vars(optimizer)
    with planned_alone(model, (effects.values, own)), _as_annotated(model):
        if optimizer is not None:
            optimizer.state.clear()
        model.zero_grad(set_to_none=True)
        try:
            yield
        finally:
            changed = effects.put_back()
    if changed:
        warn(
            f"search: the step changes {', '.join(changed)}. Expected one that changes the model "
            "and its optimizer alone, since it is called many times to be planned. What it "
            "changed there is as before; do it outside of the step, or mind what else it does."
        )


@contextlib.contextmanager
def _as_annotated(model: torch.nn.Module) -> Iterator[None]:
    """A block behind which the model's tensors have the annotations and classes of before."""
    before = [(t, type(t), _C.annotation(t)) for t in tensors_of(model).values()]
    try:
        yield
    finally:
        for tensor, kind, known in before:
            _C.annotate(tensor, known, is_state(tensor))
            tensor.__class__ = kind
