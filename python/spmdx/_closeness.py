# SPDX-License-Identifier: Apache-2.0
"""Closeness: whether two tensors are equal up to what rounding may change."""

from collections.abc import Sequence

import torch

CLOSE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.bfloat16: 4e-2, torch.float16: 4e-3}
CLOSE_BY_DEFAULT = 2e-4  # of a tensor's largest finite number: f32, added in another order
SMALL = 1e-2  # the largest number of a tensor counts as at least that


def closeness(tensors: Sequence[torch.Tensor]) -> float:
    """How close the result of these operands is, of its largest number."""
    smooth = [t.dtype for t in tensors if t.is_floating_point() or t.is_complex()]
    return max((CLOSE.get(dtype, CLOSE_BY_DEFAULT) for dtype in smooth), default=CLOSE_BY_DEFAULT)


def difference(found: torch.Tensor, wanted: torch.Tensor, close: float) -> str:
    """How two tensors differ; empty where they do not."""
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return "" if torch.equal(found, wanted) else "other whole numbers"
    finite = wanted[wanted.isfinite()].abs()
    scale = max(float(finite.max()) if finite.numel() else 0.0, SMALL)
    near = torch.isclose(found, wanted, rtol=close, atol=close * scale, equal_nan=True)
    if near.all():
        return ""
    at = tuple((~near).nonzero()[0].tolist())
    return f"{found[at].item()!r}, not {wanted[at].item()!r}, at {list(at)}"
