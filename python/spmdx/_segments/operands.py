# SPDX-License-Identifier: Apache-2.0
"""Tensors as compilers beside PyTorch take them, and what comes back from these."""

from collections.abc import Iterable

import torch

ALIGNMENT = 64  # bytes, of what vectors of processors are read from; PyTorch's own memory has it


def ready(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without what DLPack knows nothing of: its gradient, a negative bit, strides."""
    whole = tensor.detach().resolve_neg().contiguous()
    if 0 not in whole.shape and 1 not in whole.shape:
        return whole
    return whole.as_strided(whole.shape, _strides(whole.shape))  # any strides were contiguous


def _strides(shape: torch.Size) -> list[int]:
    """Of rows one behind the other."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 1, 0, -1):
        strides[dim - 1] = strides[dim] * max(shape[dim], 1)
    return strides


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it if its memory begins where vectors may not."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def apart(outputs: Iterable[torch.Tensor], inputs: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs, with copies of those that share memory with an input or one before them."""
    taken = [_span(tensor) for tensor in inputs]
    found = []
    for output in outputs:
        first, end = _span(output)
        if any(first < other_end and other < end for other, other_end in taken):
            output = output.clone()
        taken.append(_span(output))
        found.append(output)
    return found


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
