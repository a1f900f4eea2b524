# SPDX-License-Identifier: Apache-2.0
"""Many cases as one segment, as a compiler is given it, and what runs it."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from cases import Case
from spmdx._segments.segment import Op, Param, Segment, Type, Value
from spmdx.compilers import Compiler

Runs = Callable[[list[torch.Tensor]], list[torch.Tensor]]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A segment of cases that a compiler made a kernel of."""

    cases: Sequence[Case]
    runs: Runs
    views: bool = False

    def run(self, given: Sequence[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
        """Results of each case, for inputs and parameters of each."""
        tensors = [t for case, row in zip(self.cases, given, strict=True) for t in row[: _n(case)]]
        numbers = [t for case, row in zip(self.cases, given, strict=True) for t in row[_n(case) :]]
        made = list(self.runs(tensors + numbers))
        expected = sum(len(case.outputs) for case in self.cases)
        if len(made) != expected:
            raise ValueError(f"it gave {len(made)} results. Expected {expected}.")
        results, at = [], 0
        for case in self.cases:
            results.append(made[at : at + len(case.outputs)])
            at += len(case.outputs)
        return results


def _n(case: Case) -> int:
    return len(case.inputs)


def given(case: Case) -> list[torch.Tensor]:
    """New memory with a case's inputs, and its parameters as scalar tensors."""
    scalars = [torch.tensor(number, dtype=torch.float64) for number in case.params]
    return [tensor.clone() for _, tensor in case.inputs] + scalars


def kernel(compiler: Compiler, cases: Sequence[Case]) -> Kernel:
    """Compile one segment of these cases and load it."""
    segment = segment_of(cases)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        compiler.compile(segment, folder)
        made = compiler.load(segment, folder)
        runs = library(made) if isinstance(made, pathlib.Path) else made
        return Kernel(cases, runs, compiler.views)


def library(path: pathlib.Path) -> Runs:
    """What runs a library that AOTInductor made, as the program does."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1).run


def segment_of(cases: Sequence[Case]) -> Segment:
    """Inputs of all of them come first, then their ops one after the other."""
    inputs: list[tuple[int, Type]] = []
    places: list[dict[int, int]] = []
    for case in cases:
        places.append({})
        for number, (kind, _) in enumerate(case.inputs):
            places[-1][number] = len(inputs)
            inputs.append((len(inputs), kind))
    ops: list[Op] = []
    outputs: list[tuple[int, Type]] = []
    params, free = 0, len(inputs)
    for case, place in zip(cases, places, strict=True):
        for op in case.ops:
            args = tuple(_moved(arg, place, params) for arg in op.args)
            ops.append(dataclasses.replace(op, args=args, first=free))
            place.update({op.first + i: free + i for i in range(len(op.types))})
            free += len(op.types)
        outputs += [(place[number], kind) for number, kind in case.outputs]
        params += len(case.params)
    text = printed(inputs, params, ops, outputs)
    return Segment(text, tuple(inputs), params, tuple(ops), tuple(outputs))


def _moved(arg: Any, place: dict[int, int], params: int) -> Any:
    if isinstance(arg, list):
        return [_moved(item, place, params) for item in arg]
    if isinstance(arg, Value):
        return Value(place[arg.number])
    return Param(arg.number + params) if isinstance(arg, Param) else arg


def printed(
    inputs: Sequence[tuple[int, Type]],
    params: int,
    ops: Sequence[Op],
    outputs: Sequence[tuple[int, Type]],
) -> str:
    """A segment in the manner of dumps: equal for equal segments."""
    lines = [f"%{number} = input : {_type(kind)}" for number, kind in inputs]
    lines += [f"real#{number} = param" for number in range(params)]
    for op in ops:
        results = ", ".join(f"%{op.first + i}" for i in range(len(op.types)))
        kinds = ", ".join(map(_type, op.types))
        lines.append(f"{results} = {op.name}({', '.join(map(_arg, op.args))}) : {kinds}")
    lines.append("return " + ", ".join(f"%{number}" for number, _ in outputs))
    return "\n".join(lines) + "\n"


def _type(kind: Type) -> str:
    return f"{kind.dtype}[{', '.join(map(str, kind.shape))}]" + (" number" * kind.is_number)


def _arg(arg: Any) -> str:
    if isinstance(arg, list):
        return "[" + ", ".join(map(_arg, arg)) + "]"
    if isinstance(arg, Value):
        return f"%{arg.number}"
    return f"real#{arg.number}" if isinstance(arg, Param) else repr(arg)
