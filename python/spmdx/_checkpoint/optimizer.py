# SPDX-License-Identifier: Apache-2.0
"""The state of an optimizer in the form that was saved: a new one has none yet."""

from typing import Any

import torch

from spmdx._annotate.sharding import get_sharding
from spmdx._checkpoint.format.boxes import fresh, is_device_tensor
from spmdx._checkpoint.format.manifest import Saved
from spmdx._checkpoint.format.schema import shown
from spmdx.errors import CheckpointError

Path = tuple[str | int, ...]
_AS_IT_WAS = "Make the optimizer as it was when the checkpoint was saved."


def optimizer_state(
    optimizer: torch.optim.Optimizer, held: dict, prefix: Path, saved: dict[str, Saved]
) -> dict[str, Any]:
    """``held``, its ``state_dict()``, keeps what it has; entries that it lacks are made.

    State of the parameter's shape is made like the parameter.
    """
    own = {e.path[len(prefix) :]: e for e in saved.values() if e.path[: len(prefix)] == prefix}
    if not own:
        return held
    numbered = _by_number(optimizer, held)
    known = {**held, "state": {str(i): state for i, state in held["state"].items()}}
    leaves: dict[Path, Any] = {}
    for path, entry in own.items():
        number = path[1] if path and path[0] == "state" and len(path) > 1 else None
        if number is not None and number not in numbered:
            raise CheckpointError(
                f"the checkpoint has {_name(entry.path)}, the state of parameter "
                f"{str(number)[:40]}. Expected one of the optimizer's {len(numbered)} parameters, "
                f"by its number. {_AS_IT_WAS}"
            )
        value = _find(known, path)
        parameter = None if number is None else numbered[number][1]
        leaves[path] = _blank(entry, parameter) if value is None else value
    made = {"state": {}, "param_groups": [], **_nested(leaves, prefix)}
    _require_same_groups(made["param_groups"], held["param_groups"], own, prefix)
    _require_kind(made["state"], dict, (*prefix, "state"))
    for number, state in made["state"].items():
        _require_kind(state, dict, (*prefix, "state", number))
    made["state"] = {numbered[number][0]: state for number, state in made["state"].items()}
    return made


def require_as_many_parameters(
    optimizer: torch.optim.Optimizer, held: dict, name: str, values: dict[str, Any]
) -> None:
    """Raise CheckpointError unless the groups in ``values``, by name, are those of the optimizer.

    Optimizers check it themselves, but only after their state is overwritten.
    """
    for i, group in enumerate(optimizer.param_groups[: len(held["param_groups"])]):
        found = values.get(f"{name}.param_groups.{i}.params", held["param_groups"][i]["params"])
        if not isinstance(found, list) or len(found) != len(group["params"]):
            raise CheckpointError(
                f"the checkpoint has other parameters for group {i} of {name}. Expected "
                f"{len(group['params'])}. {_AS_IT_WAS}"
            )


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _by_number(optimizer: torch.optim.Optimizer, held: dict) -> dict[Any, tuple]:
    """Key in the state and parameter, by the name that the key has in a path."""
    groups = zip(held["param_groups"], optimizer.param_groups, strict=True)
    pairs = [zip(h["params"], g["params"], strict=True) for h, g in groups]
    return {str(key): (key, parameter) for pair in pairs for key, parameter in pair}


def _nested(leaves: dict[Path, Any], prefix: Path) -> dict[str, Any]:
    """Dicts and lists that have the leaves at their paths.

    Raises:
        CheckpointError: a list would have holes, or something would be a leaf and hold others.
    """
    children: dict[Path, dict] = {(): {}}
    for path, leaf in leaves.items():
        for depth in range(1, len(path)):
            if path[:depth] not in children:
                children[path[:depth]] = children[path[: depth - 1]][path[depth - 1]] = {}
        if not path or path in children:
            raise _no_tree((*prefix, *path))
        children[path[:-1]][path[-1]] = leaf
    if any(path in children for path in leaves):
        raise _no_tree(prefix)
    for path in sorted(children, key=len, reverse=True)[:-1]:  # innermost first
        found = children[path]
        if all(type(key) is int for key in found):
            if sorted(found) != list(range(len(found))):
                raise _no_tree((*prefix, *path))
            children[path[:-1]][path[-1]] = [found[i] for i in range(len(found))]
        elif any(type(key) is int for key in found):
            raise _no_tree((*prefix, *path))
    return children[()]


def _no_tree(path: Path) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint has entries of {shown(_name(path))} that fit into no dict and no list. "
        f"Expected the state of an optimizer. {_AS_IT_WAS}"
    )


def _require_kind(value: Any, kind: type, path: Path) -> None:
    if not isinstance(value, kind):
        raise _no_tree(path)


def _require_same_groups(made: Any, held: list, own: dict[Path, Saved], prefix: Path) -> None:
    _require_kind(made, list, (*prefix, "param_groups"))
    if len(made) != len(held):
        raise CheckpointError(
            f"the checkpoint has {len(made)} parameter groups for {_name(prefix)}, the optimizer "
            f"{len(held)}. Expected as many. {_AS_IT_WAS}"
        )
    for i, group in enumerate(made):
        _require_kind(group, dict, (*prefix, "param_groups", i))
        numbers = own.get(("param_groups", i, "params"))
        if numbers is None or numbers.dtype is not None:
            raise CheckpointError(
                f"the checkpoint lacks the parameters of group {i} of {_name(prefix)}. Expected "
                f"their numbers. {_AS_IT_WAS}"
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
    return torch.zeros(saved.shape, dtype=saved.dtype)
