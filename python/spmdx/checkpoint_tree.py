# SPDX-License-Identifier: Apache-2.0
"""A nested state as flat entries with the names of torch.distributed.checkpoint, and back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from spmdx.checkpoint_boxes import fresh, is_device_tensor
from spmdx.checkpoint_manifest import Saved
from spmdx.errors import CheckpointError
from spmdx.sharding import get_sharding

Path = tuple[str | int, ...]


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
    objects: list[tuple[Any, dict]] = field(default_factory=list)


def flatten(state: Any, saved: dict[str, Saved] | None = None) -> Tree:
    """The tree of ``state``; an optimizer in it gets the entries that ``saved`` has for it."""
    if not isinstance(state, Mapping):
        raise CheckpointError(
            f"the state is a {type(state).__name__}. Expected a dict. Write "
            '{"model": model, "optimizer": optimizer}, or give their state_dict().'
        )
    tree = Tree()
    for entry in _walk(state, (), tree, saved):
        name = _name(entry.path)
        if name in tree.entries:
            raise CheckpointError(
                f"two entries of the state are called {name}. Expected one. Rename a key."
            )
        tree.entries[name] = entry
    return tree


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _walk(container: Any, prefix: Path, tree: Tree, saved: dict | None) -> Iterator[Entry]:
    is_list = isinstance(container, list)
    for key, value in enumerate(container) if is_list else container.items():
        path = (*prefix, key if is_list else str(key))
        if _is_object(value):
            held = value.state_dict()
            if saved is not None and isinstance(value, torch.optim.Optimizer):
                held = _optimizer_state(value, held, path, saved)
            tree.objects.append((value, held))
            value = held
        if isinstance(value, Mapping) or (isinstance(value, list) and not _is_leaf(value)):
            yield from _walk(value, path, tree, saved)
        else:
            yield Entry(path, container, key)


def _is_object(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and hasattr(value, "load_state_dict")


def _is_leaf(value: list) -> bool:
    """Lists without tensors and dicts are one value, as in torch.distributed.checkpoint."""
    return not any(
        isinstance(v, torch.Tensor | Mapping)
        or _is_object(v)
        or (isinstance(v, list) and not _is_leaf(v))
        for v in value
    )


def _optimizer_state(
    optimizer: torch.optim.Optimizer, held: dict, prefix: Path, saved: dict[str, Saved]
) -> dict[str, Any]:
    """A state of the form that was saved: a new optimizer has none before its first step.

    What ``held`` has stays; what it lacks is made, like the parameter where it is of its shape.
    """
    from torch.distributed.checkpoint._traverse import set_element

    own = [(e.path[len(prefix) :], e) for e in saved.values() if e.path[: len(prefix)] == prefix]
    if not own:
        return held
    numbered = _by_number(optimizer, held)
    known = {**held, "state": {str(i): state for i, state in held["state"].items()}}
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    for path, entry in own:
        number = path[1] if path[0] == "state" and len(path) > 1 else None
        if number is not None and number not in numbered:
            raise CheckpointError(
                f"the checkpoint has {_name(entry.path)}, the state of parameter {number}. "
                f"Expected one of the optimizer's {len(numbered)} parameters, by its number. "
                "Make the optimizer as it was when the checkpoint was saved."
            )
        value = _find(known, path)
        parameter = None if number is None else numbered[number][1]
        set_element(made, path, _blank(entry, parameter) if value is None else value)
    _require_as_many_groups(made, held, prefix)
    made["state"] = {numbered[number][0]: state for number, state in made["state"].items()}
    return made


def _by_number(optimizer: torch.optim.Optimizer, held: dict) -> dict[str, tuple]:
    """Key in the state and parameter, by the name that the key has in a path."""
    groups = zip(held["param_groups"], optimizer.param_groups, strict=True)
    pairs = [zip(h["params"], g["params"], strict=True) for h, g in groups]
    return {str(key): (key, parameter) for pair in pairs for key, parameter in pair}


def _require_as_many_groups(made: dict, held: dict, prefix: Path) -> None:
    found, own = len(made["param_groups"]), len(held["param_groups"])
    if found != own:
        raise CheckpointError(
            f"the checkpoint has {found} parameter groups for {_name(prefix)}, the optimizer {own}."
            " Expected as many. Make the optimizer as it was when the checkpoint was saved."
        )


def _find(root: Any, path: Path) -> Any:
    """What stands at ``path``, or None."""
    try:
        for part in path:
            root = root[part]
    except (KeyError, IndexError, TypeError):
        return None
    return root


def _blank(saved: Saved, parameter: torch.Tensor | None) -> Any:
    if saved.dtype is None:
        return None
    if is_device_tensor(parameter) and tuple(parameter.shape) == saved.shape:
        return fresh(saved.shape, saved.dtype, get_sharding(parameter))
    return torch.empty(saved.shape, dtype=saved.dtype)


def finish(tree: Tree) -> None:
    """Give the objects their states, in the order in which they stand."""
    for owner, held in tree.objects:
        owner.load_state_dict(held)
