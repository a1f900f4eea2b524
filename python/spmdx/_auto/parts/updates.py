# SPDX-License-Identifier: Apache-2.0
"""What devices hold of parameters, and how long they are updated: each is measured by itself."""

import contextlib
from collections.abc import Iterator, Sequence

import torch

import spmdx._C as _C
from spmdx._auto.parts.costs import Part
from spmdx._auto.parts.laid import local_bytes
from spmdx._pipelines.trial import gradient_like, lazy_in
from spmdx.errors import ShardingError


class Updates:
    """Whether an optimizer's step updates what has gradients."""

    def __init__(self) -> None:
        self._measured: set[int] = set()

    @contextlib.contextmanager
    def of(self, parameters: Sequence[torch.Tensor]) -> Iterator[None]:
        """A block in which that of these is measured."""
        self._measured = set(map(id, parameters))
        try:
            yield
        finally:
            self._measured = set()

    @contextlib.contextmanager
    def put_off(self, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
        """A block in which the optimizer's step finds no gradients but those that are measured."""
        aside: list[tuple[torch.Tensor, torch.Tensor]] = []

        def before(of: torch.optim.Optimizer, *_: object) -> None:
            own = [p for group in of.param_groups for p in group["params"]]
            for parameter in own:
                if parameter.grad is not None and id(parameter) not in self._measured:
                    aside.append((parameter, parameter.grad))
                    parameter.grad = None

        def after(*_: object) -> None:
            for parameter, gradient in aside:
                parameter.grad = gradient
            aside.clear()

        with contextlib.ExitStack() as hooks:
            if optimizer is not None:
                hooks.callback(optimizer.register_step_pre_hook(before).remove)
                hooks.callback(optimizer.register_step_post_hook(after).remove)
            yield


def count(
    part: Part,
    parameters: Sequence[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Adds to a part what devices hold of parameters, and times to add gradients and to update."""
    learned = [p for p in parameters if p.requires_grad]
    part.fixed_bytes += sum(local_bytes(p) for p in parameters if not p.requires_grad)
    part.parameter_bytes += sum(map(local_bytes, learned))
    part.gradient_bytes += sum(map(local_bytes, learned))
    if not learned:
        return
    added = _added(learned)
    part.accumulate_ns += added.ns
    part.accumulate_ops += added.ops
    if optimizer is None:
        return
    for _ in range(2):  # the first makes the state
        for parameter in learned:
            parameter.grad = gradient_like(parameter)
        _C.planned()
        _step(optimizer)
        update = _C.planned()
    part.update_ns += update.ns
    part.update_ops += update.ops
    for parameter in learned:
        parameter.grad = None
        state = optimizer.state.pop(parameter, {})
        part.state_bytes += sum(map(local_bytes, lazy_in(state)))


def _added(parameters: Sequence[torch.nn.Parameter]) -> "_C.PlannedCost":
    """Gradients of these to others."""
    both = [(gradient_like(p), gradient_like(p)) for p in parameters]
    _C.planned()
    for total, gradient in both:
        total.add_(gradient)
    return _C.planned()


def _step(optimizer: torch.optim.Optimizer) -> None:
    try:
        optimizer.step()
    except ShardingError:
        raise
    except Exception as error:
        raise ShardingError(
            f"the optimizer, {type(optimizer).__name__}, cannot be planned: {error}. Expected one "
            "whose step takes no closure, and dense gradients. Pass another, such as AdamW."
        ) from error
