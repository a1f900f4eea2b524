# SPDX-License-Identifier: Apache-2.0
"""Closeness: whether two tensors are equal up to what rounding may change."""

from collections.abc import Callable, Sequence

import torch

CLOSE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float16: 4e-3,
    torch.complex32: 4e-3,
    torch.bfloat16: 4e-2,
    torch.float8_e4m3fn: 7e-2,
    torch.float8_e5m2: 13e-2,
}
CLOSE_BY_DEFAULT = 2e-4  # of a tensor's largest finite number: f32, added in another order
SMALL = 1e-2  # the largest number of a tensor counts as at least that
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)  # they can be converted, and little else
ROUNDINGS = 8  # of an operand, in units of its last place, whose effect on a result is excused
NUDGES = 8  # draws of signs of these


def closeness(tensors: Sequence[torch.Tensor]) -> float:
    """How close the result of these operands is, of its largest number."""
    smooth = [t.dtype for t in tensors if is_smooth(t)]
    return max((CLOSE.get(dtype, CLOSE_BY_DEFAULT) for dtype in smooth), default=CLOSE_BY_DEFAULT)


def difference(
    found: torch.Tensor,
    wanted: torch.Tensor,
    close: float,
    leeway: Callable[[], torch.Tensor] | None = None,
) -> str:
    """How two tensors differ; empty where they do not.

    Args:
        found: one.
        wanted: the other, of the same dtype.
        close: what they may differ by, of the largest number and of each.
        leeway: asked where that does not do: what each number may differ by.
    """
    if not is_smooth(wanted):
        return "" if torch.equal(found, wanted) else "other whole numbers"
    if wanted.dtype in EIGHT_BITS:
        found, wanted = found.float(), wanted.float()
    finite = wanted[wanted.isfinite()].abs()
    scale = max(float(finite.max()) if finite.numel() else 0.0, SMALL)
    near = torch.isclose(found, wanted, rtol=close, atol=close * scale, equal_nan=True)
    if leeway and not near.all():
        near |= change(found, wanted) <= leeway()
    if near.all():
        return ""
    at = tuple((~near).nonzero()[0].tolist())
    return f"{found[at].item()!r}, not {wanted[at].item()!r}, at {list(at)}"


def leeway_of(
    run: Callable[[list[torch.Tensor]], torch.Tensor], operands: Sequence[torch.Tensor]
) -> torch.Tensor:
    """How much each number of a result changes when its operands are off by rounding.

    Where large terms cancel, that is much more than closeness allows.
    """
    exact = run(list(operands))
    most = torch.zeros_like(exact, dtype=torch.float64)
    for seed in range(NUDGES):
        signs = torch.Generator().manual_seed(seed)
        most = most.maximum(change(run([nudged(t, signs) for t in operands]), exact))
    return most


def change(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How far numbers are apart; infinity for those of which one alone is no number."""
    apart = (a - b).abs().double().nan_to_num(nan=torch.inf)
    return apart.masked_fill((a == b) | (a.isnan() & b.isnan()), 0.0)


def nudged(value: torch.Tensor, signs: torch.Generator) -> torch.Tensor:
    if not is_smooth(value) or value.dtype in EIGHT_BITS:
        return value
    step = ROUNDINGS * torch.finfo(value.dtype).eps
    drawn = torch.randint(2, value.shape, generator=signs) * 2 - 1
    return (value * (1 + step * drawn)).to(value.dtype)


def is_smooth(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
