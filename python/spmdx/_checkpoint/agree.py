# SPDX-License-Identifier: Apache-2.0
"""What must be equal in all processes of a save or a load; compared before anything is written."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.spec import Sharding
from spmdx._checkpoint.format.boxes import is_device_tensor
from spmdx._checkpoint.format.schema import shown
from spmdx._checkpoint.together import Exchange, together
from spmdx._checkpoint.tree import Tree
from spmdx._world.processes import process_count
from spmdx.errors import CheckpointError

ONE_PLACE = (
    "Expected one checkpoint: the path leads to different ones. Mount the same file system at it "
    "in all processes."
)
_FIELDS = ("kind", "path", "dtype", "shape", "place")


def agree_on_call(exchange: Exchange, call: str, what: Callable[[], str]) -> None:
    """Raise CheckpointError, in all processes, unless all of them make the same call.

    Args:
        exchange: of this call.
        call: the function's name.
        what: gives what the call works on, such as a path; if it raises in one process, all raise.
    """
    require_alike(
        together(exchange, lambda: f"{call}: {what()}"),
        "calls",
        "Expected one call of all processes, with the same path: each writes or reads its part. "
        "Let one process choose the path, and tell the others.",
    )


def agree_on_index(exchange: Exchange, folder: Any, find: Callable[[], tuple[str, bytes]]) -> Any:
    """What ``find`` gives: the index file, which must be the same file in all processes."""
    found: list[tuple[str, bytes]] = []

    def digest() -> str:
        found.append(find())
        name, content = found[0]
        return f"{folder}/{name} with SHA-256 {hashlib.sha256(content).hexdigest()}"

    require_alike(together(exchange, digest), "finds", ONE_PLACE)
    return found[0]


def agree_on_tree(exchange: Exchange, make: Callable[[], Tree]) -> Tree:
    """The tree that ``make`` gives, if all processes have the same entries, in any order.

    Values may differ: those of process 0 are saved. Objects get their states in the order of
    process 0. Nothing that was traced runs before: where programs differ, one would wait for the
    other.

    Raises:
        CheckpointError: names, kinds, paths, shapes, dtypes or shardings differ; in all processes.
    """
    made: list[Tree] = []
    alone = process_count() == 1

    def describe() -> list:
        made.append(make())
        return [] if alone else [_digest(_table(made[0])), list(made[0].objects)]

    told = together(exchange, describe)
    if alone:
        return made[0]
    if any(digest != told[0][0] for digest, _ in told):
        tables = together(exchange, lambda: _table(made[0]))
        raise CheckpointError(
            f"{_difference(tables)}. Expected the same entries in every process: each writes or "
            "fills its part of every tensor. Give all of them the same names, shapes, dtypes and "
            "specs."
        )
    made[0].order_objects(told[0][1])
    return made[0]


def require_alike(told: list[str], does: str, rest: str) -> None:
    """Raise CheckpointError, in all processes, unless all of them told the same."""
    for process, one in enumerate(told):
        if one != told[0]:
            raise CheckpointError(
                f"process {process} {does} {one}, and process 0 {does} {told[0]}. {rest}"
            )


def _table(tree: Tree) -> dict[str, list]:
    """A row of _FIELDS for each entry, by name."""
    return {name: _described(entry) for name, entry in sorted(tree.entries.items())}


def _described(entry: Any) -> list:
    value, path = entry.value, list(entry.path)
    if not isinstance(value, torch.Tensor):
        return ["a value that is no tensor", path, None, None, None]
    place = value.device.type
    if is_device_tensor(value):
        marked = _C.annotation(value)
        place = "what the program gives it" if marked is None else _laid(Sharding(marked))
    return ["a tensor", path, str(value.dtype), list(value.shape), place]


def _laid(sharding: Sharding) -> str:
    devices = json.dumps(sharding.mesh.device_ids.flatten().tolist())
    return f"{sharding!r} of devices {hashlib.sha256(devices.encode()).hexdigest()[:8]}"


def _digest(table: dict[str, list]) -> str:
    return hashlib.sha256(json.dumps(table).encode()).hexdigest()


def _difference(tables: list[dict[str, list]]) -> str:
    """The first error: that of the process with the lowest index."""
    first = tables[0]
    for process, table in enumerate(tables):
        for one, other, lacking in ((first, table, process), (table, first, 0)):
            lost = [name for name in one if name not in other]
            if lost:
                holder = process - lacking
                return f"process {lacking} lacks {_some(lost)}, which process {holder} has"
        for name, row in table.items():
            for field, here, there in zip(_FIELDS, row, first[name], strict=True):
                if here != there:
                    return (
                        f"{shown(name)} has the {field} {here} in process {process}, and {there} "
                        "in process 0"
                    )
    return "the entries differ"


def _some(names: list[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
