# SPDX-License-Identifier: Apache-2.0
"""What callers pass: checked, with messages that say how to mend it."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from spmdx.errors import CheckpointError, ShardingError, name_of


def integers(values: Any, what: str, mend: str = "Write range(8) or (4, 2).") -> list[int]:
    """``values``, which messages call ``what``, in order; of a grid row by row."""
    try:
        found = np.asarray(list(values)).reshape(-1).tolist()
    except (TypeError, ValueError):
        found = [None]
    if not all(type(value) is int for value in found):
        raise ShardingError(f"{what} is {values!r}. Expected integers. {mend}")
    for value in found:
        if not -(2**63) <= value < 2**63:
            raise ShardingError(f"{what} has {value}. Expected integers below 2**63. {mend}")
    return found


def axis_names(names: Iterable[str] | None) -> list[str]:
    """The names of a mesh's axes; none for None."""
    if names is None:
        return []
    found = [names] if isinstance(names, str) or not is_iterable(names) else list(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in found):
        written = (names,) if isinstance(names, str) else ("data", "model")
        raise ShardingError(
            f"axis_names is {names!r}. Expected a string for each axis. Write {written!r}."
        )
    return [str(name) for name in found]


def require_tensor(value: Any, argument: str = "the first argument", there: str = "") -> None:
    """Raise ShardingError unless it is a tensor; ``there`` says on which device."""
    if not isinstance(value, torch.Tensor):
        raise ShardingError(
            f"{argument} is a {type(value).__name__}. Expected a torch.Tensor{there}. Pass a "
            "tensor, for a module one of its parameters."
        )


def require_shape(tensor: torch.Tensor, name: str | None = None) -> None:
    """Raise ShardingError for a parameter of a lazy module that has not run yet."""
    if torch.nn.parameter.is_lazy(tensor):
        name = name or name_of(tensor, "tensor")
        raise ShardingError(
            f"{name} has no shape yet. Expected a parameter that has one. Call the lazy module "
            "once first, or give it its sizes."
        )


def require_path(
    path: Any,
    example: str,
    kind: str = "a file",
    error: type[ShardingError | CheckpointError] = ShardingError,
) -> None:
    """Raise ``error`` unless it is the path of a file, or what ``kind`` says, as ``example``."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise error(f"the path is {path!r}. Expected that of {kind}. Write {example!r}.")


def is_iterable(value: Any) -> bool:
    """Whether a loop over it can begin; asks for no iterator, as that may start a loader."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 0
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")
