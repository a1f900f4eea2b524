# SPDX-License-Identifier: Apache-2.0
"""Loading: check names and shapes, check the bytes, then fill the tensors box by box."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from spmdx._annotate.sharding import get_sharding
from spmdx._base import logs
from spmdx._base.interrupts import interruptible
from spmdx._base.progress import progress
from spmdx._checkpoint.agree import agree_on_call, agree_on_index, agree_on_tree
from spmdx._checkpoint.format.boxes import (
    Piece,
    boxes_to_fill,
    fresh,
    is_device_tensor,
    pieces_of,
    release,
    wait_for_steps,
)
from spmdx._checkpoint.format.folder import absolute, mend, notice
from spmdx._checkpoint.format.manifest import Chunk, Saved
from spmdx._checkpoint.format.read import (
    check_sound,
    find_index,
    read_chunk,
    read_index,
    read_tensor_chunk,
)
from spmdx._checkpoint.optimizer import require_as_many_parameters
from spmdx._checkpoint.together import Exchange, together
from spmdx._checkpoint.tree import Tree, finish, flatten
from spmdx._world.processes import process_index
from spmdx.errors import CheckpointError, bare

_SHOWN = 5  # so many names in a message
_MIXED = "A part of the state is overwritten: load again before you use it."
Filler = Callable[[list[Piece]], None]


class Unmatched(NamedTuple):
    """What a load with ``strict=False`` passed over.

    Attributes:
        missing: names in the state that the checkpoint lacks.
        unexpected: names in the checkpoint that the state lacks.
    """

    missing: list[str]
    unexpected: list[str]


def match(tree: Tree, saved: dict[str, Saved], where: Any, strict: bool) -> Unmatched:
    """Compare names, kinds, shapes and dtypes, before anything is changed."""
    missing = [name for name in tree.entries if name not in saved]
    unexpected = [name for name in saved if name not in tree.entries]
    if strict and (missing or unexpected):
        sides = [("lacks", missing), ("has, and the state lacks,", unexpected)]
        found = " It ".join(f"{verb} {_named(names)}." for verb, names in sides if names)
        raise CheckpointError(
            f"{where} {found} Expected the names of the state. Make the state as it was "
            "when it was saved, or call with strict=False to pass over them."
        )
    for name, entry in tree.entries.items():
        if name in saved:
            _require_alike(name, entry, saved[name], where)
    return Unmatched(missing, unexpected)


def _named(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _require_alike(name: str, entry: Any, saved: Saved, where: Any) -> None:
    value = entry.value
    is_tensor = isinstance(value, torch.Tensor)
    if is_tensor and value.is_meta:
        mend_by = "Give it memory first: module.to_empty(device='spmdx')"
    elif is_tensor != (saved.dtype is not None):
        mend_by = "Give an entry of the saved kind"
    elif is_tensor and tuple(value.shape) != saved.shape:
        mend_by = "Make it of the saved shape"
    elif is_tensor and value.dtype != saved.dtype:
        mend_by = f"Load into a tensor of {saved.dtype} and convert that with .to({value.dtype})"
    else:
        return
    place = f" on {value.device}" if is_tensor else ""
    raise CheckpointError(
        f"{name} is {entry}{place} in the state, but {saved} in {where}. Expected the same. "
        f"{mend_by}."
    )


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _fill_one(tensor: torch.Tensor, sharding: Any, is_there: bool, filler: Filler) -> None:
    if not is_there:
        filler(pieces_of(tensor))
        return
    new = fresh(tensor.shape, tensor.dtype, sharding)
    filler(pieces_of(new))
    tensor.detach().copy_(new)


def fill(tensors: dict[str, torch.Tensor], filler: Callable[[str], Filler]) -> None:
    """Replace the elements of all these tensors; each keeps its sharding.

    What they held is freed first, and each gets memory of its own that is written in place: at most
    the tensors' own bytes and what ``filler`` reads at a time are in memory.
    """
    shardings = {n: get_sharding(t) for n, t in tensors.items() if is_device_tensor(t)}
    try:
        total = sum(map(_size, tensors.values()))
        with interruptible(), torch.no_grad(), progress("loading", total) as advance:
            release([tensors[name] for name in shardings])
            for name, tensor in tensors.items():
                _fill_one(tensor, shardings.get(name), name in shardings, filler(name))
                advance(_size(tensor))
            wait_for_steps()
    except Exception as error:
        raise CheckpointError(f"{bare(error)} {_MIXED}") from error
    except BaseException:  # Ctrl-C is raised as it is
        warnings.warn(_MIXED, stacklevel=2)
        raise


class _Source:
    """The tensors of one checkpoint."""

    def __init__(self, folder: Path, saved: dict[str, Saved]):
        self.folder, self.saved = folder, saved

    def check(self, name: str, tensor: torch.Tensor) -> None:
        """Raise CheckpointError unless all that is needed of the tensor is there and sound."""
        boxes = boxes_to_fill(tensor)
        for chunk in self._chunks(name, boxes):
            check_sound(self.folder, name, chunk)
            if chunk.crc is None:  # torch.load checks more than the checksums of the zip file
                read_tensor_chunk(self.folder, name, self.saved[name], chunk)

    def value(self, name: str) -> Any:
        chunk = self.saved[name].chunks[0]
        check_sound(self.folder, name, chunk)
        return read_chunk(self.folder, name, chunk)

    def filler(self, name: str) -> Filler:
        def fill_pieces(pieces: list[Piece]) -> None:
            for chunk in self._chunks(name, [piece.box for piece in pieces]):
                data = read_tensor_chunk(self.folder, name, self.saved[name], chunk)
                for box, target in pieces:
                    common = chunk.box.meet(box)
                    if common.numel:
                        target[common.inside(box)].copy_(data[common.inside(chunk.box)])
                del data

        return fill_pieces

    def _chunks(self, name: str, boxes: list) -> list[Chunk]:
        chunks = self.saved[name].chunks
        return [c for c in chunks if any(c.box.meet(box).numel for box in boxes)]


def _find(target: Path) -> None:
    """Bring the folder into order before it is read. For one process."""
    mend(target)
    notice(target, "it is not read, and removed by the next save")


def load_into(state: Any, path: Any, strict: bool, exchange: Exchange) -> Unmatched:
    """Fill ``state`` from the checkpoint at ``path``. Nothing changes unless all is sound."""
    agree_on_call(exchange, "load", lambda: f"{absolute(path)}, strict={strict}")
    target, began = absolute(path), time.monotonic()
    together(exchange, lambda: _find(target) if process_index() == 0 else None)
    index = agree_on_index(exchange, target, lambda: find_index(target))
    order = agree_on_tree(exchange, lambda: flatten(state))
    found: list[tuple[_Source, Tree, Unmatched]] = []

    def look() -> None:
        wait_for_steps()
        source = _Source(target, read_index(target, *index))
        tree = flatten(state, source.saved)
        tree.order_objects(list(order.objects))
        found.append((source, tree, match(tree, source.saved, target, strict)))

    together(exchange, look)
    source, tree, unmatched = found[0]
    tensors, values = {}, {}

    def check() -> None:
        for name in sorted(name for name in tree.entries if name in source.saved):
            if source.saved[name].dtype is None:
                values[name] = source.value(name)
            else:
                tensors[name] = tree.entries[name].value
                source.check(name, tensors[name])
        for name, (owner, held) in tree.objects.items():
            if isinstance(owner, torch.optim.Optimizer):
                require_as_many_parameters(owner, held, name, values)

    together(exchange, check)
    together(exchange, lambda: fill(tensors, source.filler))
    together(exchange, lambda: _hand_over(tree, values))
    logs.checkpoint.info(
        "loaded %d tensors from %s in %.3f s", len(tensors), target, time.monotonic() - began
    )
    return unmatched


def _hand_over(tree: Tree, values: dict[str, Any]) -> None:
    """Put values that are no tensors into their containers, and the containers into the objects."""
    for name, value in values.items():
        entry = tree.entries[name]
        entry.container[entry.key] = value
    finish(tree)
