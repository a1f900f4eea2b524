# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of several tensors that share memory: the copies share memory as they do.

PyTorch ties such copies by their storages. Tensors of the device show it none, so what they share
is said here: in the ``memo`` of a deep copy, and in a pickle by the first tensor that showed it.
"""

import copy
import copyreg
import functools
import threading
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.copies import with_annotation
from spmdx._annotate.copying import copying
from spmdx._annotate.tensor import ShardedParameter, ShardedTensor
from spmdx._base.traced import as_in_torch, on_device, untraced


@untraced
def tie(copied: torch.Tensor, source: torch.Tensor, memo: dict) -> None:
    """Lets a deep copy show the copy of the memory that ``source`` shows, as it is there."""
    if source.is_conj() or source.is_neg():
        return  # as in eager, what it shows has been copied
    key = ("spmdx memory", _C.memory_id(source))
    if key not in memo:
        memo[key] = _C.copy_of_whole(source)
    _C.show_same_of(copied, memo[key], source)


def _deepcopy(original):
    @functools.wraps(original)
    @as_in_torch
    def deepcopy(self, memo):
        if id(self) in memo or not on_device(self):
            return original(self, memo)
        copied = original(self, memo)
        tie(copied, self, memo)
        return copied

    return deepcopy


def _met(memory: int) -> torch.Tensor | None:
    for whole, written in reversed(copying.pickled.get(memory, [])):
        if written() is not None:
            return whole()
    return None


def _note(memory: int, whole: torch.Tensor, written: torch.Tensor) -> None:
    table = copying.pickled

    def forget(reference: weakref.ref) -> None:
        left = [met for met in table.get(memory, []) if met[1] is not reference]
        if left:
            table[memory] = left
        else:
            table.pop(memory, None)

    table.setdefault(memory, []).append((weakref.ref(whole), weakref.ref(written, forget)))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a copy is laid out as it is: no holes, no repeats."""
    here = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
    return torch.empty_like(here).stride() == tensor.stride()


def _reduce(original):
    def as_leaf(tensor, protocol):
        """PyTorch's own form, whose reader sets the flag on what it has just made of the values.

        The values may be those that the device holds: who pickles them only reads them.
        """
        if torch.serialization._serialization_tls.skip_data:
            original(tensor.detach(), protocol)  # raises
        arguments = _C.peek(tensor.detach()), tensor.dtype, str(tensor.device)
        made: Any = torch._utils._rebuild_device_tensor_from_cpu_tensor
        return made, (*arguments, tensor.requires_grad)

    @functools.wraps(original)
    @as_in_torch
    def reduce(self, protocol):
        if not on_device(self):
            return original(self, protocol)
        if copying.by_reference:
            return _same_memory, (self.data, self.requires_grad)
        if copying.legacy:
            raise RuntimeError(
                "PyTorch's old format of files holds no tensor of device 'spmdx': tensors are made "
                "before their values are read. Expected the format that torch.save has by default. "
                "Leave out _use_new_zipfile_serialization=False."
            )
        return with_annotation(self, tied(self, protocol))

    @untraced
    def tied(self, protocol):
        conjugate, negative = self.is_conj(), self.is_neg()
        if conjugate or negative:
            plain = self.detach().conj() if conjugate else self.detach()
            plain = torch._neg_view(plain) if negative else plain
            return _with_bits, (plain, conjugate, negative, self.requires_grad)
        twin, stood_for = copying.stands_for
        seen: Any = stood_for if self is twin else self
        memory = _C.memory_id(self)
        whole = _met(memory)
        if whole is seen or (whole is None and _C.shows_whole(self)):
            function, arguments = as_leaf(self, protocol)
            _note(memory, seen, arguments[0])
            return function, arguments
        alone = whole is None and not _C.shares_memory(self)
        if not _C.is_strided(self) or (alone and _is_dense(self)):
            return as_leaf(self, protocol)
        if whole is None:
            whole = _C.whole_of(self)
        layout = tuple(self.shape), self.stride(), self.storage_offset()
        return _view_of, (whole, self.dtype, *layout, self.requires_grad)

    return reduce


def _view_of(
    whole: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    requires_grad: bool,
) -> torch.Tensor:
    """A tensor in the memory of one that was pickled with it."""
    with torch.no_grad():
        view = torch.empty(0, dtype=dtype, device=whole.device)
        view.set_(whole.untyped_storage(), offset, shape, strides)
    return view.requires_grad_(requires_grad)


def _with_bits(
    plain: torch.Tensor, conjugate: bool, negative: bool, requires_grad: bool
) -> torch.Tensor:
    """What shows the conjugate, or the negative, of the memory of ``plain``."""
    view = plain.conj() if conjugate else plain
    view = torch._neg_view(view) if negative else view
    return view.detach().requires_grad_(requires_grad)


def _same_memory(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return tensor.requires_grad_(requires_grad)


@as_in_torch
def _shallow_copy(self: torch.Tensor) -> torch.Tensor:
    """What ``copy.copy`` makes: another tensor in the same memory."""
    before = copying.by_reference
    copying.by_reference = on_device(self)
    try:
        reducer = copyreg.dispatch_table.get(type(self))  # as copy.copy does
        reduced = self.__reduce_ex__(4) if reducer is None else reducer(self)
    finally:
        copying.by_reference = before
    if isinstance(reduced, str):
        return self
    return copy._reconstruct(self, None, *reduced)  # type: ignore[attr-defined]  # no stub has it


def _legacy_save(original):
    @functools.wraps(original)
    @as_in_torch
    def save(*args, **kwargs):
        copying.legacy = True
        try:
            return original(*args, **kwargs)
        finally:
            copying.legacy = False

    return save


def _identity(original, with_id: bool):
    """Tells the tensors that autograd saved apart by their memory where they have no address."""

    @functools.wraps(original)
    @as_in_torch
    def identity(tensor) -> Any:
        if not isinstance(tensor, torch.Tensor) or not on_device(tensor):
            return original(tensor)
        address = _C.memory_id(tensor), tensor.storage_offset()
        return (id(tensor), address, tensor._version) if with_id else (address, tensor._version)

    return identity


def _raise_at_reader(message: str) -> None:
    raise RuntimeError(message)


def _refuse_process(original):
    """The memory of the device is not shared between processes, and a copy would not be tied.

    A queue drops what its thread fails to write, and its reader waits for ever: it gets the error.
    """

    @functools.wraps(original)
    def reduce_tensor(tensor):
        if not _C.is_lazy(tensor):
            return original(tensor)
        message = (
            f"a tensor of device '{tensor.device}' cannot be sent to another process, since its "
            "memory is not shared. Expected a tensor on the CPU. Send .cpu() of it, or have every "
            "process make its own."
        )
        if threading.current_thread().name == "QueueFeederThread":
            return _raise_at_reader, (message,)
        raise RuntimeError(message)

    return reduce_tensor


def _first_of_ours(device):
    """The device, where it is no second one of ours."""
    found = torch.device(device)
    if found.type == "spmdx" and (found.index or 0) > 0:
        torch.empty(0, device=found)  # raises what it raises for any tensor
    return device


def _restore_location(original):
    """PyTorch asks no function where a tensor without a storage goes; of the device, it is asked.

    It gets an empty storage: where that goes, the tensor goes.
    """

    @functools.wraps(original)
    @as_in_torch
    def location(device):
        asked: Any = torch.serialization._serialization_tls.map_location
        is_ours = torch.device(device).type == torch._C._get_privateuse1_backend_name()
        if not is_ours or not callable(asked):
            return _first_of_ours(original(device))
        moved = asked(torch.UntypedStorage(0), str(device))
        return _first_of_ours(device if moved is None else moved.device)

    return location


def _load(original):
    """Where a load that fails was asked to put tensors, pickles that come later must not go."""

    @functools.wraps(original)
    def load(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        finally:
            torch.serialization._serialization_tls.map_location = None

    return load


def _keep_in_process() -> None:
    reduce = _refuse_process(torch.multiprocessing.reductions.reduce_tensor)
    for kind in (torch.Tensor, torch.nn.Parameter, ShardedTensor, ShardedParameter):
        ForkingPickler.register(kind, reduce)


def install() -> None:
    """Teaches ``copy``, ``pickle`` and autograd's saved tensors; runs once."""
    _keep_in_process()
    tensor: Any = torch.Tensor  # whose methods are replaced
    tensor.__deepcopy__ = _deepcopy(tensor.__deepcopy__)
    tensor._reduce_ex_internal = _reduce(tensor._reduce_ex_internal)
    tensor.__copy__ = _shallow_copy
    torch._utils._get_restore_location = _restore_location(torch._utils._get_restore_location)
    graph = torch.autograd.graph
    graph._get_tid = _identity(graph._get_tid, True)
    graph._get_sid = _identity(graph._get_sid, False)
    torch.serialization._load = _load(torch.serialization._load)
    torch.serialization._legacy_save = _legacy_save(torch.serialization._legacy_save)
    torch.serialization.add_safe_globals([_view_of, _with_bits])
