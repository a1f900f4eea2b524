# SPDX-License-Identifier: Apache-2.0
"""Two twins of a program: one whose step function is compiled, and one that is traced each time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import spmdx
import torch
from torch import nn


@dataclass
class Program:
    """A step function, and what it changes."""

    step: Callable[..., Any]
    model: nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    tensors: list[torch.Tensor] = field(default_factory=list)


def tensors_of(program: Program, result: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors that a call leaves behind, by what they are."""
    for i, leaf in enumerate(torch.utils._pytree.tree_leaves(result)):
        if isinstance(leaf, torch.Tensor):
            yield f"result {i}", leaf
    for i, tensor in enumerate(program.tensors):
        yield f"tensor {i}", tensor
    if program.model is not None:
        for name, tensor in program.model.state_dict().items():
            yield name, tensor
        for name, parameter in program.model.named_parameters():
            if parameter.grad is not None:
                yield f"gradient of {name}", parameter.grad
    if program.optimizer is not None:
        for i, state in enumerate(program.optimizer.state.values()):
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    yield f"{name} of {i}", value


def assert_same(traced: Program, compiled: Program, results: tuple[Any, Any], call: int) -> None:
    """Bit for bit."""
    a, b = list(tensors_of(traced, results[0])), list(tensors_of(compiled, results[1]))
    assert [name for name, _ in a] == [name for name, _ in b], f"call {call}"
    for (name, x), (_, y) in zip(a, b, strict=True):
        x, y = x.detach().cpu(), y.detach().cpu()
        same = x.dtype == y.dtype and torch.equal(x.nan_to_num(), y.nan_to_num())
        assert same, f"call {call}: {name}"


def run_twins(
    make: Callable[[], Program],
    batch: Callable[[int], tuple[Any, ...]],
    calls: int,
    between: Callable[[Program, int], None] = lambda program, call: None,
) -> Any:
    """Runs both, one call after the other; what a call leaves behind is the same.

    Args:
        make: makes the program; twice the same.
        batch: the arguments of a call, by its number; each time the same.
        calls: how many.
        between: what the program does before a call.

    Returns:
        The compiled function.
    """
    programs, draws = [], []
    for _ in range(2):
        torch.manual_seed(0)
        spmdx.manual_seed(0)
        programs.append(make())
        draws.append(_state())
    step = spmdx.compile(programs[1].step)
    for call in range(calls):
        results = []
        for i, function in enumerate((programs[0].step, step)):
            _set_state(draws[i])
            between(programs[i], call)
            spmdx.mark_step()  # as a compiled call is a step of its own
            results.append(function(*batch(call)))
            spmdx.mark_step()
            draws[i] = _state()
        assert_same(*programs, (results[0], results[1]), call)
        assert torch.equal(draws[0], draws[1]), f"call {call}: random numbers drawn"
    return step


def _state() -> torch.Tensor:
    return spmdx._C.default_generator().get_state()


def _set_state(state: torch.Tensor) -> None:
    spmdx._C.default_generator().set_state(state)
