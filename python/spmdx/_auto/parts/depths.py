# SPDX-License-Identifier: Apache-2.0
"""How many matrices lie before each in a part of a model, along the way of the data."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from spmdx._pipelines.trial import lazy_in


def _has_matrix(module: torch.nn.Module) -> bool:
    return any(p.dim() > 1 for p in module.parameters(recurse=False))


@contextlib.contextmanager
def depths_in(unit: torch.nn.Module) -> Iterator[dict[str, int]]:
    """A block in which the unit is called; gives by name of a module with matrices its depth.

    It is 0 where none comes before, and one more than the largest of those whose results it reads,
    as autograd knows them. A module that is not called is not among them.
    """
    depths: dict[str, int] = {}
    made: dict[Any, int] = {}  # by autograd's node of a result

    def note(name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            depth = 1 + max(_deepest(lazy_in((args, kwargs)), made), default=-1)
            depths[name] = depth
            made.update((t.grad_fn, depth) for t in lazy_in(output) if t.grad_fn is not None)

        return hook

    handles = [
        module.register_forward_hook(note(name), with_kwargs=True)
        for name, module in unit.named_modules()
        if _has_matrix(module)
    ]
    try:
        yield depths
    finally:
        for handle in handles:
            handle.remove()


def _deepest(inputs: list[torch.Tensor], made: dict[Any, int]) -> Iterator[int]:
    waiting = [t.grad_fn for t in inputs if t.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node in made:
            yield made[node]
            continue
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                waiting.append(before)
