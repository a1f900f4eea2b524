# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of annotated tensors: what PyTorch makes of their class, and annotated.

An annotated tensor has a class of its own. A twin of the class that it had before is what PyTorch
and the user's classes copy. In a pickle the annotation is an attribute, so that files can be read
where spmdx is not.
"""

import copy
import copyreg
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotation_of, is_state
from spmdx._annotate.classes import sharded_class
from spmdx._annotate.copying import standing_for
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.spec import to_handle
from spmdx._base.traced import untraced
from spmdx.errors import ShardingError, bare, warn

_ANNOTATION, _CLASS = "_spmdx_annotation", "_spmdx_class"  # of tensors in pickles


def twin_of(tensor: torch.Tensor, plain: type[torch.Tensor]) -> torch.Tensor:
    """Another tensor in the same memory, of class ``plain``, with the same attributes."""
    with torch.no_grad():
        twin: torch.Tensor = torch.Tensor._make_subclass(plain, tensor, tensor.requires_grad)
    if tensor.is_leaf and tensor.grad is not None:
        twin.grad = tensor.grad
    twin.__dict__.update(tensor.__dict__)
    for slot in copyreg._slotnames(plain):  # type: ignore[attr-defined]  # as copyreg does; no stub has it
        if hasattr(tensor, slot):
            setattr(twin, slot, getattr(tensor, slot))
    return twin


@untraced
def deep_copy(tensor: torch.Tensor, plain: type[torch.Tensor], memo: dict) -> torch.Tensor:
    """What ``copy.deepcopy`` makes of a leaf that was of class ``plain``."""
    twin = twin_of(tensor, plain)
    copied = copy.deepcopy(twin, memo)
    if plain.__deepcopy__ is torch.nn.Parameter.__deepcopy__:  # which leaves attributes behind
        copied.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
    memo[id(tensor)] = copied
    return annotated(copied, written(tensor), True)


@untraced
def shallow_copy(tensor: torch.Tensor, plain: type[torch.Tensor]) -> torch.Tensor:
    """What ``copy.copy`` makes of a tensor that was of class ``plain``."""
    return annotated(copy.copy(twin_of(tensor, plain)), written(tensor), True)


@untraced
def reduced(tensor: torch.Tensor, plain: type[torch.Tensor], protocol: Any) -> Any:
    """What ``pickle`` is told of a tensor that was of class ``plain``."""
    twin = twin_of(tensor, plain)
    if not isinstance(tensor, torch.nn.Parameter):  # to which PyTorch gives its class back
        twin.__dict__[_CLASS] = True
    with standing_for(twin, tensor):
        return twin.__reduce_ex__(protocol)


def written(tensor: torch.Tensor) -> tuple | None:
    """Mesh, spec and, where it has them, stage and schedule of the annotation.

    In values that every unpickler takes.
    """
    sharding = annotation_of(tensor)
    if sharding is None:
        return None
    mesh, schedule = sharding.mesh, sharding._handle.schedule
    said = mesh.device_ids.tolist(), mesh.mesh_shape, mesh.axis_names, tuple(sharding.spec)
    if sharding.stage is None:
        return said
    return *said, (*sharding.stage, schedule) if schedule else sharding.stage


@untraced
def annotated(tensor: Any, said: tuple | None, takes_class: bool, loaded: bool = False) -> Any:
    """``tensor`` with the annotation that was ``written``, if it is on the device.

    Where a file has said it, of data and of no parameter, it ends as soon as the tensor is used
    with one that is annotated for another mesh.
    """
    if said is None or not isinstance(tensor, torch.Tensor) or not _C.is_lazy(tensor):
        return tensor
    if written(tensor) != said:
        ids, shape, names, spec, *stage = said
        try:
            handle = to_handle(spec, Mesh(ids, shape, names), tensor, "tensor")
            for axis, number, *schedule in stage:
                handle = handle.on(axis, number).scheduled("".join(schedule))
        except ShardingError as error:
            warn(f"the annotation of a tensor that was loaded ends: {bare(error)}")
            return tensor
        _C.annotate(tensor, handle, is_state(tensor), loaded and not is_state(tensor))
    if takes_class:
        tensor.__class__ = sharded_class(type(tensor))
    return tensor


class _WhenSet:
    """An attribute of tensors that does something when a pickle sets it, and is not kept."""

    def __init__(self, act: Callable[[torch.Tensor, Any], object]):
        self._act = act

    def __set__(self, tensor: torch.Tensor, value: Any) -> None:
        self._act(tensor, value)


def _take_annotation(tensor: torch.Tensor, said: Any) -> None:
    annotated(tensor, said, False, loaded=True)


def _take_class(tensor: torch.Tensor, _: Any) -> None:
    annotated(tensor, written(tensor), True)


@untraced
def with_annotation(tensor: torch.Tensor, made: tuple) -> tuple:
    """What a pickle holds of a tensor, and its annotation."""
    said = written(tensor)
    if said is None:
        return made
    function, arguments = made
    state = {_ANNOTATION: said}
    return torch._tensor._rebuild_from_type_v2, (function, torch.Tensor, arguments, state)


def install() -> None:
    """Teach tensors; once."""
    setattr(torch.Tensor, _ANNOTATION, _WhenSet(_take_annotation))
    setattr(torch.Tensor, _CLASS, _WhenSet(_take_class))
