# SPDX-License-Identifier: Apache-2.0
"""What a trial must leave as it was: random numbers, what modules keep, casts of autocast."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

import spmdx._C as _C
from spmdx._program.plan import plan_only


@contextlib.contextmanager
def planned_alone(model: torch.nn.Module) -> Iterator[None]:
    """A block of :func:`spmdx.plan_only` that leaves no trace, also where it is within another."""
    generator = _C.default_generator()
    state, attributes = generator.get_state(), _attributes(model)
    with plan_only(), torch.random.fork_rng(devices=[]):
        _C.flush()
        _C.set_plans_are_trials(True)
        try:
            yield
        finally:
            _C.set_plans_are_trials(False)
            _put_back(attributes)
            torch.clear_autocast_cache()
            generator.set_state(state)


def _attributes(model: torch.nn.Module) -> list[tuple[Any, Any]]:
    """The attributes of modules, and the dicts and lists among them, each with what is in it."""
    kept: list[tuple[Any, Any]] = []
    for module in model.modules():
        own = vars(module)
        kept.append((own, own.copy()))
        kept += [(value, value.copy()) for value in own.values() if type(value) in (dict, list)]
    return kept


def _put_back(kept: list[tuple[Any, Any]]) -> None:
    for container, content in kept:
        container.clear()
        if isinstance(container, dict):
            container.update(content)
        else:
            container.extend(content)
