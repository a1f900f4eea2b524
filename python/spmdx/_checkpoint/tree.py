# SPDX-License-Identifier: Apache-2.0
"""A nested state as flat entries with the names of torch.distributed.checkpoint, and back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from spmdx._checkpoint.format.manifest import Saved
from spmdx._checkpoint.optimizer import Path, optimizer_state
from spmdx.errors import CheckpointError


@dataclass
class Entry:
    """A value and where it stands: ``container[key]``."""

    path: Path
    container: Any
    key: Any

    @property
    def value(self) -> Any:
        return self.container[self.key]

    def __str__(self) -> str:
        if isinstance(self.value, torch.Tensor):
            return f"a tensor of shape {tuple(self.value.shape)} and {self.value.dtype}"
        return f"a {type(self.value).__name__}, which is no tensor"


@dataclass
class Tree:
    """The entries by name, and objects with their state_dict(), which is among the entries."""

    entries: dict[str, Entry] = field(default_factory=dict)
    objects: dict[str, tuple[Any, dict]] = field(default_factory=dict)

    def order_objects(self, names: list[str]) -> None:
        """Put the objects into the order of ``names``; objects that are not named come last."""
        places = {name: place for place, name in enumerate(names)}
        last = len(places)
        self.objects = dict(sorted(self.objects.items(), key=lambda o: places.get(o[0], last)))


def flatten(state: Any, saved: dict[str, Saved] | None = None) -> Tree:
    """The tree of ``state``; an optimizer in it gets the entries that ``saved`` has for it."""
    if not isinstance(state, Mapping):
        raise CheckpointError(
            f"the state is a {type(state).__name__}. Expected a dict. Write "
            '{"model": model, "optimizer": optimizer}, or give their state_dict().'
        )
    tree = Tree()
    for entry in _walk(state, (), tree, saved):
        name = name_of(entry.path)
        _require_new(name, tree.entries)
        tree.entries[name] = entry
    return tree


def _require_new(name: str, known: dict[str, Any]) -> None:
    if name in known:
        raise CheckpointError(
            f"two entries of the state are called {name}. Expected one. Rename a key."
        )


def name_of(path: Path) -> str:
    return ".".join(map(str, path))


def _walk(container: Any, prefix: Path, tree: Tree, saved: dict | None) -> Iterator[Entry]:
    is_list = isinstance(container, list)
    for key, value in enumerate(container) if is_list else container.items():
        path = (*prefix, key if is_list else str(key))
        if _is_object(value):
            held = value.state_dict()
            if saved is not None and isinstance(value, torch.optim.Optimizer):
                held = optimizer_state(value, held, path, saved)
            _require_new(name_of(path), tree.objects)
            tree.objects[name_of(path)] = value, held
            value = held
        if isinstance(value, Mapping) or (isinstance(value, list) and not _is_leaf(value)):
            yield from _walk(value, path, tree, saved)
        else:
            yield Entry(path, container, key)


def _is_object(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and hasattr(value, "load_state_dict")


def _is_leaf(value: list) -> bool:
    """A list without tensors and dicts is one value, as in torch.distributed.checkpoint."""
    return not any(
        isinstance(v, torch.Tensor | Mapping)
        or _is_object(v)
        or (isinstance(v, list) and not _is_leaf(v))
        for v in value
    )


def finish(tree: Tree) -> None:
    """Give the objects their states, in the tree's order of them."""
    for owner, held in tree.objects.values():
        owner.load_state_dict(held)
