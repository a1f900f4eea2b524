# SPDX-License-Identifier: Apache-2.0
"""Entries of partition specs: the axes that cut one dim."""

from collections.abc import Sequence
from typing import Any

from spmdx.errors import ShardingError


def written(entry: Any) -> str:
    """An entry of a partition spec as it is written in a program."""
    return "..." if entry is ... else repr(entry)


def entry_of(axes: Sequence[Any]) -> Any:
    """The entry of a partition spec that says that these axes cut a dim, major first."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else tuple(axes)


def axes_in(entry: Any) -> list[Any]:
    """The axes that an entry of a partition spec names, major first."""
    return list(entry) if isinstance(entry, tuple | list) else [] if entry is None else [entry]


def cutting(rank: int, dim: int | None, entry: Any) -> tuple[Any, ...]:
    """The partition spec with one entry, at ``dim``; None leaves a tensor whole."""
    return tuple(entry if at == dim else None for at in range(rank))


def _is_axis(value: Any) -> bool:
    """Whether it may name an axis: a string, or an index that the core can take."""
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    return isinstance(value, str)


def axes_written(entry: Any, spec: Any) -> list[int | str]:
    """The axes of an entry of ``spec``, as the core takes them. Raises ShardingError."""
    axes = axes_in(entry)
    if not all(map(_is_axis, axes)):
        raise ShardingError(
            f"the partition spec {spec!r} has the entry {entry!r}. Expected None, an axis "
            "name, an axis index, or a tuple of them. Write ('data', None)."
        )
    return axes


def require_spec(spec: Any, axes: Sequence[str], rank: int) -> None:
    """Raise ShardingError unless it is a tuple or a list, whatever is in it."""
    if isinstance(spec, tuple | list):
        return
    said, first = repr(spec), spec
    if spec is not None and not _is_axis(spec):
        said, first = f"a {type(spec).__name__}", next(iter(axes), None)
    written = ((first,) + (None,) * (rank - 1)) if rank else ()
    raise ShardingError(
        f"the partition spec is {said}. Expected a tuple with one entry a dim. Write {written!r}."
    )
