# SPDX-License-Identifier: Apache-2.0
"""Batches: the tensors in a nested structure, each with the keys that lead to it."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spmdx.errors import ShardingError

Path = tuple[Any, ...]


def map_tensors(visit: Callable[[Path, torch.Tensor], Any], batch: Any, path: Path = ()) -> Any:
    """The same structure with ``visit(path, tensor)`` for every tensor; the rest as it is.

    Args:
        visit: called in the order of the structure.
        batch: what torch's pytree knows (dicts, lists, tuples, named tuples, dataclasses that are
            registered there), and other mappings, such as the encodings of tokenizers.
        path: the keys that lead to ``batch``.

    Returns:
        A new structure; ``batch`` is not written to.

    Example:
        >>> import torch
        >>> map_tensors(lambda path, t: (path, t.item()), {"a": [torch.tensor(1), "text"]})
        {'a': [(('a', 0), 1), 'text']}
    """
    if isinstance(batch, torch.Tensor):
        return visit(path, batch)
    top = id(batch)  # a closure over `batch` is a cycle in pytree, which keeps tensors alive
    children, structure = pytree.tree_flatten(batch, is_leaf=lambda node: id(node) != top)
    if not structure.is_leaf():
        keys = _keys(batch, len(children))
        pairs = zip(keys, children, strict=True)
        return pytree.tree_unflatten(
            [map_tensors(visit, child, (*path, key)) for key, child in pairs], structure
        )
    if isinstance(batch, MutableMapping):
        filled = copy.copy(batch)
        for key, value in batch.items():
            filled[key] = map_tensors(visit, value, (*path, key))
        return filled
    return batch


def _keys(node: Any, count: int) -> Sequence[Any]:
    """What leads to the children of ``node``: keys, names of fields, or indices."""
    keys: Sequence[Any] = range(count)
    if isinstance(node, Mapping):
        keys = list(node)
    elif hasattr(node, "_fields"):
        keys = node._fields
    elif dataclasses.is_dataclass(node):
        keys = [field.name for field in dataclasses.fields(node)]
    return keys if len(keys) == count else range(count)


def name_of_path(path: Path) -> str:
    """What messages call the tensor at ``path``.

    Example:
        >>> name_of_path(("x", 0))
        "batch['x'][0]"
    """
    return "batch" + "".join(f"[{key!r}]" for key in path)


def entry_for(entries: Any, path: Path) -> Any:
    """What nested ``entries`` say of the tensor at ``path``: an entry holds for all below it.

    Raises:
        ShardingError: a mapping lacks the key.

    Example:
        >>> entry_for({"x": 1, "rest": {0: 2, 1: 3}}, ("x", "below"))
        1
        >>> entry_for({"x": 1, "rest": {0: 2, 1: 3}}, ("rest", 1))
        3
    """
    for depth, key in enumerate(path):
        if not isinstance(entries, Mapping):
            break
        if key not in entries:
            raise ShardingError(
                f"input_sharding says nothing of {name_of_path(path[: depth + 1])}. Expected an "
                f"entry for {key!r} beside {', '.join(map(repr, entries))}. Write "
                "a ShardingSpec, or None for a tensor that every device holds whole."
            )
        entries = entries[key]
    if isinstance(entries, Mapping):
        raise ShardingError(
            f"{name_of_path(path)} is a tensor, and input_sharding has a dict for it with the keys "
            f"{', '.join(map(repr, entries))}. Expected a ShardingSpec or None. Nest the dicts of "
            "input_sharding as the batch is nested."
        )
    return entries
