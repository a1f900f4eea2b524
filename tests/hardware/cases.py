# SPDX-License-Identifier: Apache-2.0
"""A case: a few ops on real tensors, which PyTorch runs op by op and a compiler as one kernel."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from spmdx._segments.segment import DTYPES, Op, Param, Type, Value
from torch.utils import _pytree as pytree

NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NOTHING = Type("unknown", ())  # of a result that an op does not make


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """Values are numbered from 0 on: inputs, then results.

    Attributes:
        about: the overload, or what a chain of ops is called.
        check: what it is for: ``"values"``, ``"special numbers"``, ``"sizes"`` …
        dtype: that it is listed under.
        ops: in an order in which they can run.
        inputs: types and tensors.
        params: numbers that may change from run to run.
        outputs: numbers and types of values that are compared.
    """

    about: str
    check: str
    dtype: str
    ops: tuple[Op, ...]
    inputs: tuple[tuple[Type, torch.Tensor], ...]
    params: tuple[float, ...]
    outputs: tuple[tuple[int, Type], ...]

    @functools.cached_property
    def expected(self) -> list[torch.Tensor]:
        """What PyTorch's kernels give."""
        return self.run([tensor.clone() for _, tensor in self.inputs], self.params)

    def run(
        self, tensors: Sequence[torch.Tensor], params: Sequence[float], double: bool = False
    ) -> list[torch.Tensor]:
        """By PyTorch's kernels, op by op; in double precision, wherever there are floats."""
        values: dict[int, Any] = {}
        for number, ((kind, _), tensor) in enumerate(zip(self.inputs, tensors, strict=True)):
            wide = tensor.double() if double and tensor.is_floating_point() else tensor
            values[number] = tensor.item() if kind.is_number else wide
        for op in self.ops:
            for i, result in enumerate(call(op, values, params, double)):
                values[op.first + i] = None if result is None else result.contiguous()
        return [values[number] for number, _ in self.outputs]

    def dtypes(self) -> set[str]:
        """Of all its values."""
        kinds = [kind for kind, _ in self.inputs] + [kind for op in self.ops for kind in op.types]
        return {kind.dtype for kind in kinds if kind != NOTHING}


def aten_op(name: str) -> torch._ops.OpOverload:
    """``torch.ops.aten.mm.default`` for ``"aten.mm"``."""
    namespace, packet, *overload = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet)
    return getattr(found, overload[0] if overload else "default")


def name_of(target: torch._ops.OpOverload) -> str:
    """``"aten.mm"`` for ``torch.ops.aten.mm.default``."""
    return str(target).removesuffix(".default")


def call(op: Op, values: dict[int, Any], params: Sequence[float], double: bool) -> list[Any]:
    """Results of PyTorch's kernel; None for one that it does not make."""

    def given(arg: Any) -> Any:
        if isinstance(arg, list):
            return [given(item) for item in arg]
        if isinstance(arg, Value):
            return values[arg.number]
        if isinstance(arg, Param):
            return params[arg.number]
        return torch.float64 if double and arg in FLOATS else arg

    target = aten_op(op.name)
    args, named = [], {}
    for argument, arg in zip(target._schema.arguments, op.args, strict=False):
        if argument.kwarg_only:
            named[argument.name] = given(arg)
        else:
            args.append(given(arg))
    with torch.no_grad():
        made = target(*args, **named)
    return list(made) if isinstance(made, tuple | list) else [made]


def case_of(
    name: str, args: Sequence[Any], dtype: str = "", check: str = "values", params=()
) -> Case | None:
    """A case of one op, of arguments in the order of its schema, with tensors among them.

    Returns:
        None if it takes or gives what no segment has.
    """
    inputs: list[tuple[Type, torch.Tensor]] = []
    numbers: dict[int, int] = {}

    def described(arg: Any, wants_tensor: bool) -> Any:
        if isinstance(arg, list | tuple):
            return [described(item, wants_tensor) for item in arg]
        is_number = wants_tensor and isinstance(arg, bool | int | float)
        if not isinstance(arg, torch.Tensor) and not is_number:
            return arg
        if id(arg) not in numbers or is_number:
            tensor = number_tensor(arg) if is_number else arg.detach().clone().contiguous()
            numbers[id(arg)] = len(inputs)
            kind = Type(NAMES[tensor.dtype], tuple(tensor.shape), is_number)
            inputs.append((kind, tensor))
        return Value(numbers[id(arg)])

    arguments = aten_op(name)._schema.arguments
    described_args = tuple(
        described(arg, "Tensor" in str(argument.type))
        for arg, argument in zip(args, arguments, strict=False)
    )
    if not all(map(_is_told, pytree.tree_leaves(list(described_args)))):
        return None
    op = Op(name, described_args, len(inputs), ())
    results = call(op, _operands(inputs), params, double=False)
    if not all(result is None or _is_plain(result) for result in results):
        return None
    types = tuple(
        NOTHING if result is None else Type(NAMES[result.dtype], tuple(result.shape))
        for result in results
    )
    outputs = tuple((op.first + i, kind) for i, kind in enumerate(types) if kind != NOTHING)
    if not outputs:
        return None
    whole = (dataclasses.replace(op, types=types),)
    return Case(name, check, dtype or types[0].dtype, whole, tuple(inputs), tuple(params), outputs)


def arguments_of(case: Case) -> list[Any]:
    """Of the one op of a case, with its tensors and numbers, as ``case_of`` takes them."""
    held = {i: t.item() if kind.is_number else t for i, (kind, t) in enumerate(case.inputs)}

    def given(arg: Any) -> Any:
        if isinstance(arg, list):
            return [given(item) for item in arg]
        return held[arg.number] if isinstance(arg, Value) else arg

    return [given(arg) for arg in case.ops[0].args]


def number_tensor(number: bool | int | float) -> torch.Tensor:
    """A scalar tensor that stands for a number of Python."""
    dtype = torch.float64 if isinstance(number, float) else None
    return torch.tensor(number, dtype=dtype)


def _operands(inputs: list[tuple[Type, torch.Tensor]]) -> dict[int, Any]:
    """Clones, for an op that writes where its schema does not say so."""
    return {i: t.item() if kind.is_number else t.clone() for i, (kind, t) in enumerate(inputs)}


def _is_plain(result: Any) -> bool:
    is_dense = isinstance(result, torch.Tensor) and result.layout == torch.strided
    return is_dense and result.dtype in NAMES


def _is_told(leaf: Any) -> bool:
    told = (int, float, str, type(None), Value, Param, torch.dtype, torch.memory_format)
    return isinstance(leaf, told)
