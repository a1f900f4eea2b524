# SPDX-License-Identifier: Apache-2.0
"""Storages on the device: what PyTorch does with their bytes, and addresses to tell them by.

Nothing lies at these addresses: like that of a GPU, this memory is not to be read by the host.
Libraries see by them which tensors share it.
"""

import functools
from numbers import Integral
from typing import Any

import torch

import spmdx._C as _C
from spmdx._base.traced import as_in_torch, on_device
from spmdx.errors import located

_ROOM = 40  # bits of an address within one memory


def _is_ours(storage: torch.UntypedStorage) -> bool:
    return storage.device.type == torch._C._get_privateuse1_backend_name()


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """A tensor in the memory of a storage."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _copy_bytes(original):
    """PyTorch takes a storage without an address for one that is gone."""

    @functools.wraps(original)
    def copy_(self, src, *args, **kwargs):
        if not (_is_ours(self) or _is_ours(src)):
            return original(self, src, *args, **kwargs)
        if self.nbytes() != src.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes "
                f"but src was {src.nbytes()} bytes"
            )
        _bytes_of(self).copy_(_bytes_of(src))
        return self

    return copy_


def _fill_bytes(original):
    @functools.wraps(original)
    def fill_(self, *args, **kwargs):
        if not _is_ours(self):
            return original(self, *args, **kwargs)
        byte: Any = torch.UntypedStorage(1)
        _bytes_of(self).fill_(byte.fill_(*args, **kwargs)[0])
        return self

    return fill_


def _count(size: Any) -> int:
    """Refuses what the CPU refuses, too."""
    if isinstance(size, bool) or not isinstance(size, Integral | torch.SymInt):
        wrong = f"the size is {size!r}"
    elif not 0 <= int(size) < 2**63:
        wrong = f"the size is {int(size)} bytes"
    else:
        return int(size)
    mend = "Expected a whole number of bytes, from 0 on and below 2**63. Write storage.nbytes()."
    raise RuntimeError(located("resize_", f"{wrong}. {mend}"))


def _resize(original):
    """PyTorch takes a storage without an address for one that is gone."""

    @functools.wraps(original)
    @as_in_torch
    def resize_(self, *args, **kwargs):
        if not _is_ours(self) or kwargs or len(args) != 1:
            return original(self, *args, **kwargs)
        (size,) = args
        _C.resize_storage(self, _count(size))
        return self

    return resize_


def _swap_bytes(original):
    """PyTorch reads the bytes in place."""

    @functools.wraps(original)
    def byteswap(self, dtype):
        if _is_ours(self):
            raise RuntimeError(
                located(
                    "byteswap",
                    "the storage is on device 'spmdx', whose bytes the host does not read. "
                    "Expected one on the CPU. Call .cpu() on it first.",
                )
            )
        return original(self, dtype)

    return byteswap


def _of_storages(original):
    @functools.wraps(original)
    def data_ptr(self):
        if not _is_ours(self):
            return original(self)
        return _C.memory_id(_bytes_of(self)) << _ROOM

    return data_ptr


def _of_tensors(original):
    @functools.wraps(original)
    @as_in_torch
    def data_ptr(self):
        if not on_device(self):
            return original(self)
        return (_C.memory_id(self) << _ROOM) + self.storage_offset() * self.element_size()

    return data_ptr


def install() -> None:
    """Teaches storages, and tensors their addresses; runs once."""
    kind: Any = torch.UntypedStorage  # whose methods are replaced
    kind.resize_ = _resize(kind.resize_)
    kind.copy_ = _copy_bytes(kind.copy_)
    kind.fill_ = _fill_bytes(kind.fill_)
    kind.byteswap = _swap_bytes(kind.byteswap)
    kind.data_ptr = _of_storages(kind.data_ptr)
    tensor: Any = torch.Tensor
    tensor.data_ptr = _of_tensors(tensor.data_ptr)
