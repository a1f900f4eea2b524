# SPDX-License-Identifier: Apache-2.0
"""Segments in primitive ops, which are few: what PyTorch's decompositions leave of each op."""

import dataclasses
import functools
import operator as python_operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from spmdx._segments.compiler import NotTaken
from spmdx._segments.decompositions import decompositions
from spmdx._segments.fx_nodes import name_of, types_of
from spmdx._segments.graph_module import graph_module
from spmdx._segments.one_line import of_error
from spmdx._segments.segment import DTYPES, NAMES, Op, Param, Segment, Type, Value


def primitive_text(
    segment: Segment,
    rows: frozenset[str],
    check: Callable[[str], object] = lambda text: None,
    whose: str = "",
) -> str:
    """A segment in the language of dumps, of primitive ops.

    Args:
        rows: names of ops that are primitive, whatever PyTorch makes of them.
        check: raises for the text of a single op that cannot be written.
        whose: names the check; what one let pass may not be right for another.

    Raises:
        NotTaken: ops of the segment cannot be written.
    """
    return primitive_segment(segment, rows, lambda alone: check(alone.text), whose).text


def primitive_segment(
    segment: Segment,
    rows: frozenset[str],
    check: Callable[[Segment], object] = lambda alone: None,
    whose: str = "",
) -> Segment:
    """A segment of primitive ops, whose parameters are inputs of f64 behind the others.

    Args:
        rows: names of ops that are primitive, whatever PyTorch makes of them.
        check: raises for a single op that cannot be written, as a segment of its primitive ops.
        whose: names the check; what one let pass may not be right for another.

    Raises:
        NotTaken: ops of the segment cannot be written.
    """
    types = dict(segment.inputs)
    whole = _Whole()
    for number, kind in segment.inputs:
        whole.input(Value(number), kind)
    for number in range(segment.params):
        whole.input(Param(number), Type("f64", ()))
    reasons: dict[int, str] = {}
    for place, op in enumerate(segment.ops):
        types.update({op.first + i: kind for i, kind in enumerate(op.types)})
        try:
            part = _part(_numbered(op, types), rows)
            if (rows, whose, part.alone.text) not in _checked:
                check(part.alone)
                _checked.add((rows, whose, part.alone.text))
        except Exception as error:
            reasons[place] = f"{op.name}: {of_error(error)}"
            continue
        if not reasons:
            whole.add(part, op)
    if reasons:
        raise NotTaken(reasons)
    return whole.segment(segment.outputs)


_checked: set[tuple[frozenset[str], str, str]] = set()


@dataclasses.dataclass(frozen=True)
class _Part:
    """One op alone: its primitive ops, with results numbered from its operands on."""

    calls: tuple[Op, ...]
    results: tuple[int | None, ...]  # by results of the op
    alone: Segment


class _Whole:
    """A segment as it grows."""

    def __init__(self) -> None:
        self._numbers: dict[Value | Param, int] = {}
        self._inputs: list[tuple[int, Type]] = []
        self._ops: list[Op] = []
        self._next = 0

    def input(self, of: Value | Param, kind: Type) -> None:
        self._numbers[of] = self._next
        self._inputs.append((self._next, kind))
        self._next += 1

    def add(self, part: _Part, op: Op) -> None:
        numbers = [self._numbers[operand] for operand in _operands(op)]
        for call in part.calls:
            args = tuple(_renumbered(arg, numbers) for arg in call.args)
            self._ops.append(Op(call.name, args, self._next, call.types))
            numbers.extend(range(self._next, self._next + len(call.types)))
            self._next += len(call.types)
        for i, result in enumerate(part.results):
            if result is not None:
                self._numbers[Value(op.first + i)] = numbers[result]

    def segment(self, outputs: Iterable[tuple[int, Type]]) -> Segment:
        returned = [(self._numbers[Value(number)], kind) for number, kind in outputs]
        return _segment(self._inputs, self._ops, returned)


def _renumbered(arg: Any, numbers: list[int]) -> Any:
    if isinstance(arg, list):
        return [_renumbered(item, numbers) for item in arg]
    return Value(numbers[arg.number]) if isinstance(arg, Value) else arg


def _segment(
    inputs: Iterable[tuple[int, Type]], ops: Iterable[Op], outputs: Iterable[tuple[int, Type]]
) -> Segment:
    """A segment without parameters, and its text."""
    inputs, ops, outputs = tuple(inputs), tuple(ops), tuple(outputs)
    lines = [f'%{number} = input "" {_type_text(kind)}' for number, kind in inputs]
    for op in ops:
        made = (f"%{op.first + i} : {_type_text(kind)}" for i, kind in enumerate(op.types))
        args = ", ".join(map(_arg_text, op.args))
        lines.append(f"{', '.join(made)} = {op.name}({args})")
    lines += [f"return %{number}" for number, _ in outputs]
    return Segment("\n".join(lines) + "\n", inputs, 0, ops, outputs)


def _operands(op: Op) -> tuple[Value | Param, ...]:
    """Of an op, each once, in the order of its arguments."""
    found: dict[Value | Param, None] = {}

    def look(arg: Any) -> None:
        if isinstance(arg, Value | Param):
            found[arg] = None
        elif isinstance(arg, list):
            for item in arg:
                look(item)

    for arg in op.args:
        look(arg)
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class _Numbered:
    """An op whose operands are numbered from 0 on: equal for equal ops."""

    op: Op
    kinds: tuple[Type | None, ...]  # of its operands; None of parameters
    key: str

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Numbered) and self.key == other.key


def _numbered(op: Op, types: dict[int, Type]) -> _Numbered:
    operands = _operands(op)
    new: dict[Value | Param, Value | Param] = {}
    for operand in operands:
        params = sum(isinstance(one, Param) for one in new)
        is_param = isinstance(operand, Param)
        new[operand] = Param(params) if is_param else Value(len(new) - params)

    def renamed(arg: Any) -> Any:
        if isinstance(arg, list):
            return [renamed(item) for item in arg]
        return new[arg] if isinstance(arg, Value | Param) else arg

    kinds = tuple(types[one.number] if isinstance(one, Value) else None for one in operands)
    args = tuple(map(renamed, op.args))
    renumbered = Op(op.name, args, len(kinds), op.types)
    return _Numbered(renumbered, kinds, repr((renumbered, kinds)))


@functools.lru_cache(maxsize=4096)
def _part(of: _Numbered, rows: frozenset[str]) -> _Part:
    """Raises ValueError for what cannot be written."""
    op = of.op
    if op.name in rows and None not in of.kinds:
        return _as_it_is(of)
    inputs = tuple((i, kind) for i, kind in enumerate(k for k in of.kinds if k is not None))
    params = sum(kind is None for kind in of.kinds)
    wanted = tuple((op.first + i, t) for i, t in enumerate(op.types) if t.dtype in DTYPES)
    alone = Segment("", inputs, params, (op,), wanted)
    module = _decomposed(graph_module(alone), alone, rows)
    return _as_part(module, of, [number - op.first for number, _ in wanted], len(op.types))


def _as_it_is(of: _Numbered) -> _Part:
    op, kinds = of.op, [kind for kind in of.kinds if kind is not None]
    results = [op.first + i if t.dtype in DTYPES else None for i, t in enumerate(op.types)]
    args = tuple(map(_told, op.args))
    return _whole_part(kinds, [Op(op.name, args, op.first, op.types)], results)


def _decomposed(module: GraphModule, segment: Segment, rows: frozenset[str]) -> GraphModule:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode(), torch.no_grad():
        examples = [torch.empty(t.shape, dtype=DTYPES[t.dtype]) for _, t in segment.inputs]
        examples += [torch.empty((), dtype=torch.float64) for _ in range(segment.params)]
        traced = make_fx(module, decomposition_table=decompositions(rows))(*examples)
    for node in traced.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema and schema.is_mutable and schema.name != "prims::as_strided":  # which only reads
            raise ValueError(f"its decomposition writes to a tensor, by {node.target}")
    traced.graph.eliminate_dead_code()
    return traced


def _as_part(module: GraphModule, of: _Numbered, wanted: list[int], count: int) -> _Part:
    numbers: dict[Node, int] = {}
    calls: list[Op] = []
    order = _order_of_placeholders(of)
    next_number = len(of.kinds)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            numbers[node] = order[len(numbers)]
        elif node.op == "call_function" and node.target is python_operator.getitem:
            numbers[node] = numbers[node.args[0]] + node.args[1]
        elif node.op == "call_function":
            numbers[node] = next_number
            calls.append(_call(node, numbers))
            next_number += len(calls[-1].types)
        elif node.op != "output":
            raise ValueError(f"its decomposition has a {node.op}")
    results: list[int | None] = [None] * count
    outputs: Any = module.graph.output_node().args[0]
    for place, output in zip(wanted, outputs, strict=True):
        (found,), kind = types_of(output), of.op.types[place]
        if found.shape != kind.shape:
            raise ValueError(f"its decomposition gives {found.shape}, and not {kind.shape}")
        results[place] = numbers[output]
        if found.dtype != kind.dtype:  # a decomposition keeps more digits than the op
            args = (Value(numbers[output]), DTYPES[kind.dtype])
            calls.append(Op("prims.convert_element_type", args, next_number, (kind,)))
            results[place], next_number = next_number, next_number + 1
    kinds = [Type("f64", ()) if kind is None else kind for kind in of.kinds]
    return _whole_part(kinds, calls, results)


def _order_of_placeholders(of: _Numbered) -> list[int]:
    """A module takes values, then parameters; an op has them in the order of its arguments."""
    values = [i for i, kind in enumerate(of.kinds) if kind is not None]
    return values + [i for i, kind in enumerate(of.kinds) if kind is None]


def _whole_part(kinds: list[Type], calls: list[Op], results: list[int | None]) -> _Part:
    types = dict(enumerate(kinds))
    for call in calls:
        types.update({call.first + i: kind for i, kind in enumerate(call.types)})
    outputs = [(result, types[result]) for result in results if result is not None]
    return _Part(tuple(calls), tuple(results), _segment(enumerate(kinds), calls, outputs))


def _type_text(kind: Type) -> str:
    return f"{kind.dtype}[{', '.join(map(str, kind.shape))}]"


def _call(node: Node, numbers: dict[Node, int]) -> Op:
    target: Any = node.target
    whole: Any = node.args[0] if node.args else None
    schema = target._schema
    if schema.name.endswith("::as_strided") and not whole.meta["val"].is_contiguous():
        raise ValueError("its decomposition depends on strides")
    args = []
    for i, argument in enumerate(schema.arguments):
        given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        if given is None and i >= len(node.args) and argument.has_default_value():
            given = node.kwargs.get(argument.name, argument.default_value)
        args.append(_told(given, numbers))
    return Op(name_of(node), tuple(args), numbers[node], types_of(node))


def _told(arg: Any, numbers: dict[Node, int] | None = None) -> Any:
    """An argument of an op as segments have them; places of memory say nothing."""
    if isinstance(arg, Node) and numbers is not None:
        return Value(numbers[arg])
    if isinstance(arg, list | tuple):
        return [_told(item, numbers) for item in arg]
    if arg is None or isinstance(arg, torch.device | torch.layout | torch.memory_format):
        return None
    if isinstance(arg, bool | int | float | str | torch.dtype | Value):
        return arg
    raise ValueError(f"an argument of its decomposition is {arg!r}")


def _arg_text(arg: Any) -> str:
    if isinstance(arg, Value):
        return f"%{arg.number}"
    if isinstance(arg, bool):
        return "true" if arg else "false"
    if isinstance(arg, int | float):
        return repr(arg)
    if isinstance(arg, torch.dtype):
        return f"dtype:{NAMES[arg]}"
    if isinstance(arg, list):
        return f"[{', '.join(map(_arg_text, arg))}]"
    return "none" if arg is None else f'"{arg}"'
