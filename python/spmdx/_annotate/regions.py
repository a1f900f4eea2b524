# SPDX-License-Identifier: Apache-2.0
"""Which manual region a thread is in while it traces a function of one device."""

import dataclasses
import threading

import torch

from spmdx._annotate.mesh import Mesh


@dataclasses.dataclass
class Region:
    """A region while it is traced: its axes are vmap levels, so its values are global tensors."""

    mesh: Mesh
    axes: tuple[str, ...]  # outermost level first
    coordinates: dict[str, torch.Tensor]  # by axis; each varies along its own axis only


class _Stack(threading.local):
    def __init__(self) -> None:
        self.regions: list[Region] = []


_stack = _Stack()


class inside:
    """A block in which tensors are those of one device of a region."""

    def __init__(self, region: Region):
        self._region = region

    def __enter__(self) -> None:
        _stack.regions.append(self._region)

    def __exit__(self, *error: object) -> None:
        _stack.regions.pop()


def current_region() -> Region | None:
    """The region this call is in, or None."""
    return _stack.regions[-1] if _stack.regions else None
