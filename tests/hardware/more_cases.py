# SPDX-License-Identifier: Apache-2.0
"""Cases made of others: special numbers, sizes of nought and of scalars, parameters."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from cases import FLOATS, Case, arguments_of, aten_op, case_of
from spmdx._segments.segment import DTYPES, Param

INF, NAN = float("inf"), float("nan")
SPECIAL = (0.0, -0.0, 1.5, INF, -2.5, NAN, 0.25, -INF, 3.0, 0.5, -0.0, -1.0)
# Sums over some elements, which pass on what is no number. Not means beside a variance: PyTorch's
# own make NaN of infinities there, which are right.
_REDUCTIONS = (
    *("sum", "mean", "amax", "amin", "max", "min", "prod", "logsumexp", "_softmax", "cumsum"),
    *("_log_softmax", "var", "linalg_vector_norm", "aminmax", "any", "all", "argmax", "argmin"),
    *("nansum", "cumprod", "std", "count_nonzero"),
)
_ANY_ORDER = (*_REDUCTIONS, "mm", "bmm", "addmm", "convolution")
# Numbers that say how often, or where: PyTorch itself loops or fails for what is no number.
_NO_SPECIAL = ("aten.special_", "aten.polygamma", "aten.mvlgamma", "aten.igamma", "aten.nextafter")


def is_pointwise(name: str) -> bool:
    """Whether each number of a result depends on one of each operand."""
    return torch.Tag.pointwise in aten_op(name).tags


def special_numbers(case: Case) -> Case | None:
    """The call with infinities, NaN and zeros of both signs among its floats."""
    reduces = _packet(case.about) in _REDUCTIONS
    is_one = (is_pointwise(case.about) or reduces) and not case.about.startswith(_NO_SPECIAL)
    if not is_one or DTYPES[case.dtype] not in FLOATS:
        return None

    def filled(index: int, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            return tensor
        count = tensor.numel()
        numbers = [SPECIAL[(i * (1 + 4 * index) + index) % len(SPECIAL)] for i in range(count)]
        return torch.tensor(numbers, dtype=tensor.dtype).reshape(tensor.shape)

    return _with_tensors(case, filled, "special numbers")


def sizes(case: Case) -> Iterator[Case | None]:
    """The call of scalars, and of nothing, for ops that take any shape."""
    if not is_pointwise(case.about):
        return
    yield _with_tensors(case, lambda _, t: t.flatten()[0] if t.numel() else t, "sizes")
    yield _with_tensors(case, lambda _, t: t.new_zeros((0, 3)), "sizes")


def with_params(case: Case, ops: Collection[str]) -> Case | None:
    """The call with numbers of the op's floats as parameters."""
    if case.about not in ops or DTYPES[case.dtype] not in FLOATS:
        return None
    (op,) = case.ops
    params: list[float] = []
    args: list[Any] = []
    for argument, arg in zip(aten_op(op.name)._schema.arguments, op.args, strict=False):
        if str(argument.type) in ("number", "float") and isinstance(arg, float):
            args.append(Param(len(params)))
            params.append(float(arg) + 0.5)
        else:
            args.append(arg)
    if not params:
        return None
    whole = (dataclasses.replace(op, args=tuple(args)),)
    return dataclasses.replace(case, check="params", ops=whole, params=tuple(params))


def in_other_numbers(case: Case) -> Case:
    """The same with other parameters."""
    return dataclasses.replace(case, params=tuple(2.5 - number / 2 for number in case.params))


def _packet(name: str) -> str:
    return name.split(".")[1]


def _may_be_flipped(name: str) -> bool:
    return is_pointwise(name) or _packet(name) in _ANY_ORDER


def flipped(case: Case) -> Case:
    """The same with the numbers of its operands in another order, where they may have any."""
    if len(case.ops) > 1 or not _may_be_flipped(case.about):
        return case
    inputs = tuple((kind, t.flip(tuple(range(t.dim())))) for kind, t in case.inputs)
    return dataclasses.replace(case, inputs=inputs)


def _with_tensors(
    case: Case, change: Callable[[int, torch.Tensor], torch.Tensor], check: str
) -> Case | None:
    numbers = {id(tensor): i for i, (_, tensor) in enumerate(case.inputs)}

    def changed(arg: Any) -> Any:
        if isinstance(arg, list):
            return [changed(item) for item in arg]
        return change(numbers[id(arg)], arg) if isinstance(arg, torch.Tensor) else arg

    args = [changed(arg) for arg in arguments_of(case)]
    try:
        return case_of(case.about, args, case.dtype, check)
    except (RuntimeError, ValueError, IndexError, NotImplementedError):
        return None  # PyTorch has no such call


def all_of(cases: Sequence[Case], ops_with_params: Collection[str]) -> Iterator[Case]:
    """What is made of the calls of one op that were chosen."""
    plain = [case for case in cases if any(t.numel() > 3 for _, t in case.inputs)]
    for case in plain[:1]:
        made = [special_numbers(case), *sizes(case), with_params(case, ops_with_params)]
        yield from filter(None, made)
