# SPDX-License-Identifier: Apache-2.0
"""Texts of tensors on the device: their data are read once, and formatted on the host.

Otherwise each of the ops that find out how wide a number is would be recorded as the program's.
"""

import functools

import torch

from spmdx._base.traced import as_in_torch, on_device


def _on_host(formatted):
    @functools.wraps(formatted)
    @as_in_torch
    def text(tensor: torch.Tensor, indent: int) -> str:
        return formatted(tensor.detach().cpu() if on_device(tensor) else tensor, indent)

    return text


def install() -> None:
    """Teaches PyTorch's own formatting, which all texts of tensors go through; runs once."""
    module = torch._tensor_str
    module._tensor_str = _on_host(module._tensor_str)
