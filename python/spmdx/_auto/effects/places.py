# SPDX-License-Identifier: Apache-2.0
"""Places of a program that hold something, and can be made to hold it again."""

from collections.abc import Callable
from operator import is_
from types import CellType
from typing import Any, NamedTuple

from spmdx._pipelines.reached import CONTAINERS


class Place(NamedTuple):
    """Something that a step can change.

    Attributes:
        name: under which a step reaches it; empty if it is of a module or an optimizer.
        read, write: what it holds, as a list of which each thing is itself.
    """

    name: str
    read: Callable[[], list[Any]]
    write: Callable[[list[Any]], None]

    def put_back(self, before: list[Any]) -> list[Any]:
        """It holds this again; returns what it held instead, or nothing if it was that."""
        now = self.read()
        if len(now) == len(before) and all(map(is_, now, before)):
            return []
        self.write(before)
        return [now]


def of_container(name: str, value: Any) -> Place:
    """Of a dict, list, set or deque: by the methods of that class, whatever a subclass does."""
    kind: Any = next(kind for kind in CONTAINERS if isinstance(value, kind))
    if issubclass(kind, dict):
        return Place(name, lambda: _items(kind, value), lambda held: _fill(kind, value, held))

    def write(held: list[Any]) -> None:
        kind.clear(value)
        (kind.update if kind is set else kind.extend)(value, held)

    return Place(name, lambda: list(kind.__iter__(value)), write)


def _items(kind: Any, value: Any) -> list[Any]:
    return [*kind.keys(value), *kind.values(value)] if value else []


def _fill(kind: Any, value: Any, held: list[Any]) -> None:
    half = len(held) // 2
    kind.clear(value)
    kind.update(value, zip(held[:half], held[half:], strict=True))


def of_cell(name: str, cell: CellType) -> Place:
    """Of a variable of a function around."""

    def read() -> list[Any]:
        try:
            return [cell.cell_contents]
        except ValueError:  # it is empty
            return []

    def write(held: list[Any]) -> None:
        if held:
            cell.cell_contents = held[0]
        else:
            del cell.cell_contents

    return Place(name, read, write)


def of_global(name: str, space: dict[str, Any]) -> Place:
    """Of a variable of a file."""

    def write(held: list[Any]) -> None:
        if held:
            space[name] = held[0]
        else:
            del space[name]

    return Place(name, lambda: [space[name]] if name in space else [], write)


def of_slot(name: str, owner: Any, slot: str) -> Place:
    """Of an attribute that an object holds in no dict."""

    def write(held: list[Any]) -> None:
        if held:
            object.__setattr__(owner, slot, held[0])
        else:
            object.__delattr__(owner, slot)

    return Place(name, lambda: [getattr(owner, slot)] if hasattr(owner, slot) else [], write)
