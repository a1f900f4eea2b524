# SPDX-License-Identifier: Apache-2.0
"""Addresses of the device's memory, by which libraries tell which tensors share it.

Nothing lies there: like that of a GPU, this memory is not to be read by the host.
"""

import functools

import torch

from spmdx import _C
from spmdx._lazy import as_in_torch, on_device

_ROOM = 40  # bits of an address within one memory


def _of_storages(original):
    @functools.wraps(original)
    def data_ptr(self):
        if self.device.type != "spmdx":
            return original(self)
        seen = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        return _C.memory_id(seen) << _ROOM

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
    """Teaches tensors and storages; runs once."""
    torch.UntypedStorage.data_ptr = _of_storages(torch.UntypedStorage.data_ptr)
    torch.Tensor.data_ptr = _of_tensors(torch.Tensor.data_ptr)
