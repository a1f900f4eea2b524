# SPDX-License-Identifier: Apache-2.0
"""How far a kernel's numbers may lie from PyTorch's: what rounding explains, and no more."""

from collections.abc import Sequence

import torch
from cases import NAMES, Case

# Times the rounding step of a dtype and the largest number of a result: always allowed.
STEPS = {torch.float64: 32, torch.float32: 16, torch.bfloat16: 2, torch.float16: 2}
# As many times what rounding does to PyTorch's own kernel is allowed too …
TIMES = 4
# … up to this share of the largest number, so that an op off by a thousandth is found in f32.
MOST = {torch.float64: 1e-7, torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 6e-3}
NUDGES = 2
# Results that are unique up to the signs of vectors.
_UP_TO_SIGN = ("aten._linalg_svd", "aten._linalg_eigh", "aten.linalg_qr")
# Results that say where a number lay, which may lie in many places.
_PLACES = {
    name: 1
    for name in (
        *("aten.sort", "aten.topk", "aten.kthvalue", "aten.mode", "aten.median.dim"),
        *("aten.nanmedian.dim", "aten.max.dim", "aten.min.dim"),
    )
}
# Ops whose zeros have the sign that IEEE 754 says.
_WITH_SIGN = (
    *("aten.neg", "aten.abs", "aten.copysign", "aten.mul.Tensor", "aten.div.Tensor", "aten.sqrt"),
    *("aten.trunc", "aten.ceil", "aten.floor", "aten.round", "aten.reciprocal", "aten.signbit"),
)


def difference(case: Case, results: Sequence[torch.Tensor]) -> str:
    """Where the results of a kernel are first other than they may be; nothing if they are not."""
    for at, (result, expected) in enumerate(zip(results, case.expected, strict=True)):
        found = _type_differs(result, expected) or _differs(case, at, results)
        if found:
            return f"result {at}: {found}" if len(results) > 1 else found
    return ""


def _type_differs(result: torch.Tensor, expected: torch.Tensor) -> str:
    if not isinstance(result, torch.Tensor):
        return f"is {type(result).__name__}. Expected a tensor"
    if result.dtype != expected.dtype:
        return f"is of {NAMES.get(result.dtype, result.dtype)}. Expected {NAMES[expected.dtype]}"
    if result.shape != expected.shape:
        return f"has shape {list(result.shape)}. Expected {list(expected.shape)}"
    return ""


def _differs(case: Case, at: int, results: Sequence[torch.Tensor]) -> str:
    result, expected = results[at], case.expected[at]
    if torch.equal(result, expected):
        return _sign_differs(case, result, expected)
    if not expected.is_floating_point():
        if _PLACES.get(case.about.removesuffix(".stable"), 0) == at > 0:
            return _places_differ(case, results)
        return _first(result != expected, result, expected, "")
    if case.about in _UP_TO_SIGN:
        result, expected = result.abs(), expected.abs()
    odd = ~expected.isfinite()
    wrong = torch.where(odd, ~_same(result, expected), ~result.isfinite())
    if wrong.any():
        return _first(wrong, result, expected, "")
    allowed, truth = bound(case, at)
    error = torch.minimum(
        (result.double() - expected.double()).abs(), (result.double() - truth).abs()
    )
    wrong = (error > allowed) & ~odd
    said = f", within {allowed:.2g}"
    return (
        _first(wrong, result, expected, said)
        if wrong.any()
        else _sign_differs(case, result, expected)
    )


def bound(case: Case, at: int) -> tuple[float, torch.Tensor]:
    """How far a result may be off, and the result in double precision."""
    expected = case.expected[at]
    step, dtype = torch.finfo(expected.dtype).eps, expected.dtype
    exact = _in_double(case, [tensor for _, tensor in case.inputs], at)
    truth = expected.double()
    if exact is not None:
        truth = torch.where(exact.isfinite(), exact, truth)
    if case.about in _UP_TO_SIGN:
        truth = truth.abs()
    wide = expected.double().abs() if case.about in _UP_TO_SIGN else expected.double()
    largest = _largest(wide)
    rounding = _largest(truth - wide)
    for seed in range(NUDGES if exact is not None else 0):
        other = _in_double(case, _nudged(case, seed), at)
        if other is not None:
            other = other.abs() if case.about in _UP_TO_SIGN else other
            rounding = max(rounding, _largest(other - truth))
    tiny = torch.finfo(dtype).tiny
    return STEPS[dtype] * step * largest + min(
        TIMES * rounding, MOST[dtype] * largest
    ) + tiny, truth


def _in_double(case: Case, tensors: list[torch.Tensor], at: int) -> torch.Tensor | None:
    """None where PyTorch has no kernel for it, or where numbers decide another shape."""
    try:
        made = case.run([t.clone() for t in tensors], case.params, double=True)[at]
    except (RuntimeError, NotImplementedError, ValueError, IndexError):
        return None
    return made.double() if made.shape == case.expected[at].shape else None


def _nudged(case: Case, seed: int) -> list[torch.Tensor]:
    """Inputs in double precision, one rounding off."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _, tensor in case.inputs:
        if tensor.is_floating_point():
            step = torch.finfo(tensor.dtype).eps
            signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
            tensor = tensor.double() * (1 + step * signs.double())
        made.append(tensor)
    return made


def _largest(tensor: torch.Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _same(result: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (result == expected) | (result.isnan() & expected.isnan())


def _sign_differs(case: Case, result: torch.Tensor, expected: torch.Tensor) -> str:
    if case.check != "special numbers" or not case.about.startswith(_WITH_SIGN):
        return ""
    if not expected.is_floating_point():
        return ""
    wrong = (expected == 0) & (result == 0) & (result.signbit() != expected.signbit())
    return _first(wrong, result, expected, "") if wrong.any() else ""


def _places_differ(case: Case, results: Sequence[torch.Tensor]) -> str:
    """Equal numbers may lie in many places: those there have to be the results."""
    values, places = results[0], results[1]
    operand = case.inputs[0][1]
    dims = [arg for arg in case.ops[0].args[1:] if type(arg) is int]
    if "stable" in case.about or operand.dim() == 0 or places.numel() == 0:
        return "places differ" if not torch.equal(places, case.expected[1]) else ""
    is_second = case.about in ("aten.topk", "aten.kthvalue")
    dim = (dims[1:] if is_second else dims)[:1] or [-1]
    if places.min() < 0 or places.max() >= operand.shape[dim[0]]:
        return "a place is out of range"
    keeps = places.dim() == operand.dim()
    if case.about in ("aten.sort", "aten.topk"):
        again = places.sort(dim[0])[0].diff(dim=dim[0]) == 0
        if again.any():
            return "a place is there twice"
    where = places if keeps else places.unsqueeze(dim[0])
    there = operand.gather(dim[0], where)
    wrong = ~_same(there if keeps else there.squeeze(dim[0]), values)
    return _first(wrong, places, case.expected[1], " or its equal") if wrong.any() else ""


def _first(wrong: torch.Tensor, result: torch.Tensor, expected: torch.Tensor, said: str) -> str:
    at = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{result[at].item():.9g} at {list(at)}. Expected {expected[at].item():.9g}{said} "
        f"({int(wrong.sum())} of {wrong.numel()} are wrong)"
    )
