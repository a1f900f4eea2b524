# SPDX-License-Identifier: Apache-2.0
"""What a trial must leave as it was: random numbers, what modules keep, casts of autocast."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

import spmdx._C as _C
from spmdx._pipelines.gradients import no_gradients_left, without_gradient_hooks
from spmdx._pipelines.put_back import container, cpu_memory, global_numbers, memory_of, numbers
from spmdx._pipelines.reached import CONTAINERS, generators, reached_from, tensors_among
from spmdx._program.plan import plan_only


@contextlib.contextmanager
def planned_alone(model: torch.nn.Module, called_with: Any) -> Iterator[None]:
    """A block of :func:`spmdx.plan_only` that leaves no trace, also where it is within another.

    Args:
        model: what its modules keep is as before, behind the block.
        called_with: its arguments, which are left likewise.
    """
    generator = _C.default_generator()
    state = generator.get_state()
    with plan_only(), torch.random.fork_rng(devices=[]), _as_before(model, called_with):
        _C.flush()
        _C.set_plans_are_trials(True)
        try:
            yield
        finally:
            _C.set_plans_are_trials(False)
            torch.clear_autocast_cache()
            generator.set_state(state)


@contextlib.contextmanager
def _as_before(model: torch.nn.Module, called_with: Any) -> Iterator[None]:
    """A block behind which what is reached from the model and its arguments is as before."""
    reached = reached_from(model, called_with)
    tensors = tensors_among(reached)
    versions = tuple(t for t in tensors if not t.is_inference())
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autograd._unsafe_preserve_version_counter(versions))
        for put_back in [*global_numbers(), *map(memory_of, tensors), *cpu_memory(tensors)]:
            stack.callback(put_back)
        for value in reached:
            if isinstance(value, CONTAINERS):
                stack.callback(container(value))
            elif isinstance(value, generators()):
                stack.callback(numbers(value))
        stack.enter_context(no_gradients_left(tensors))
        stack.enter_context(without_gradient_hooks(model, tensors))
        yield
