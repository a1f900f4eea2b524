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
from spmdx._segments.graph_module import graph_module, operator
from spmdx._segments.one_line import of_error
from spmdx._segments.own_decompositions import OWN
from spmdx._segments.segment import DTYPES, Op, Param, Segment, Type, Value

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def is_decomposed(name: str) -> bool:
    """Whether an op is put together from others."""
    target = operator(name)
    return target in OWN or target in _pytorchs()


def primitive_text(
    segment: Segment, rows: frozenset[str], check: Callable[[str], object] = lambda text: None
) -> str:
    """A segment in the language of dumps, of primitive ops.

    Args:
        rows: names of ops that are primitive, whatever PyTorch makes of them.
        check: raises for the text of a single op that cannot be written.

    Raises:
        NotTaken: ops of the segment cannot be written.
    """
    types = dict(segment.inputs)
    lines = _Lines()
    for number, kind in segment.inputs:
        lines.input(Value(number), kind)
    for number in range(segment.params):
        lines.input(Param(number), Type("f64", ()))
    reasons: dict[int, str] = {}
    for place, op in enumerate(segment.ops):
        types.update({op.first + i: kind for i, kind in enumerate(op.types)})
        try:
            part = _part(_numbered(op, types), rows)
            if part.text not in _checked:
                check(part.text)
                _checked.add(part.text)
        except Exception as error:
            reasons[place] = f"{op.name}: {of_error(error)}"
            continue
        if not reasons:
            lines.add(part, op)
    if reasons:
        raise NotTaken(reasons)
    return lines.text(Value(number) for number, _ in segment.outputs)


_checked: set[str] = set()


@dataclasses.dataclass(frozen=True)
class _Part:
    """One op alone: its primitive ops, with results numbered from its operands on."""

    calls: tuple[tuple[str, int, str], ...]  # types of results, how many, the call with %0, %1 …
    results: tuple[int | None, ...]  # by results of the op
    text: str  # as a graph


class _Lines:
    """The text of a segment as it grows."""

    def __init__(self) -> None:
        self._names: dict[Value | Param, int] = {}
        self._lines: list[str] = []
        self._next = 0

    def input(self, of: Value | Param, kind: Type) -> None:
        self._names[of] = self._next
        self._lines.append(f'%{self._next} = input "" {_type_text(kind)}')
        self._next += 1

    def add(self, part: _Part, op: Op) -> None:
        numbers = [self._names[operand] for operand in _operands(op)]
        for types, count, call in part.calls:
            made = range(self._next, self._next + count)
            results = ", ".join(f"%{n} : {t}" for n, t in zip(made, types.split("; "), strict=True))
            self._lines.append(f"{results} = {_renumbered(call, numbers)}")
            numbers.extend(made)
            self._next += count
        for i, result in enumerate(part.results):
            if result is not None:
                self._names[Value(op.first + i)] = numbers[result]

    def text(self, outputs: Iterable[Value]) -> str:
        returned = (f"return %{self._names[output]}" for output in outputs)
        return "\n".join((*self._lines, *returned)) + "\n"


def _renumbered(call: str, numbers: list[int]) -> str:
    first, *rest = call.split("%")
    pieces = [first]
    for piece in rest:
        digits = len(piece) - len(piece.lstrip("0123456789"))
        pieces.append(f"%{numbers[int(piece[:digits])]}{piece[digits:]}")
    return "".join(pieces)


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
    args = ", ".join(_arg_text(arg, {}) for arg in op.args)
    types = "; ".join(map(_type_text, op.types))
    calls = ((types, len(op.types), f"{op.name}({args})"),)
    results = [op.first + i if t.dtype in DTYPES else None for i, t in enumerate(op.types)]
    return _Part(calls, tuple(results), _alone(kinds, calls, results))


def _decomposed(module: GraphModule, segment: Segment, rows: frozenset[str]) -> GraphModule:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode(), torch.no_grad():
        examples = [torch.empty(t.shape, dtype=DTYPES[t.dtype]) for _, t in segment.inputs]
        examples += [torch.empty((), dtype=torch.float64) for _ in range(segment.params)]
        traced = make_fx(module, decomposition_table=_table(rows))(*examples)
    for node in traced.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema and schema.is_mutable and schema.name != "prims::as_strided":  # which only reads
            raise ValueError(f"its decomposition writes to a tensor, by {node.target}")
    traced.graph.eliminate_dead_code()
    return traced


@functools.cache
def _table(rows: frozenset[str]) -> dict[Any, Callable]:
    kept = {operator(name) for name in rows}
    return {op: how for op, how in {**_pytorchs(), **OWN}.items() if op not in kept}


@functools.cache
def _pytorchs() -> dict[Any, Callable]:
    from torch._decomp import global_decomposition_table

    return dict(global_decomposition_table["post_autograd"])


def _as_part(module: GraphModule, of: _Numbered, wanted: list[int], count: int) -> _Part:
    numbers: dict[Node, int] = {}
    calls: list[tuple[str, int, str]] = []
    order = _order_of_placeholders(of)
    next_number = len(of.kinds)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            numbers[node] = order[len(numbers)]
        elif node.op == "call_function" and node.target is python_operator.getitem:
            numbers[node] = numbers[node.args[0]] + node.args[1]
        elif node.op == "call_function":
            types = _types(node)
            numbers[node] = next_number
            calls.append(("; ".join(map(_type_text, types)), len(types), _call_text(node, numbers)))
            next_number += len(types)
        elif node.op != "output":
            raise ValueError(f"its decomposition has a {node.op}")
    results: list[int | None] = [None] * count
    (outputs,) = module.graph.output_node().args
    for place, output in zip(wanted, outputs, strict=True):
        (found,), kind = _types(output), of.op.types[place]
        if found.shape != kind.shape:
            raise ValueError(f"its decomposition gives {found.shape}, and not {kind.shape}")
        results[place] = numbers[output]
        if found.dtype != kind.dtype:  # a decomposition keeps more digits than the op
            call = f"prims.convert_element_type(%{numbers[output]}, dtype:{kind.dtype})"
            calls.append((_type_text(kind), 1, call))
            results[place], next_number = next_number, next_number + 1
    kinds = [Type("f64", ()) if kind is None else kind for kind in of.kinds]
    return _Part(tuple(calls), tuple(results), _alone(kinds, calls, results))


def _order_of_placeholders(of: _Numbered) -> list[int]:
    """A module takes values, then parameters; an op has them in the order of its arguments."""
    values = [i for i, kind in enumerate(of.kinds) if kind is not None]
    return values + [i for i, kind in enumerate(of.kinds) if kind is None]


def _alone(kinds: list[Type], calls: list[tuple[str, int, str]], results: list[int | None]) -> str:
    lines = [f'%{i} = input "" {_type_text(kind)}' for i, kind in enumerate(kinds)]
    number = len(kinds)
    for types, count, call in calls:
        made = range(number, number + count)
        named = ", ".join(f"%{n} : {t}" for n, t in zip(made, types.split("; "), strict=True))
        lines.append(f"{named} = {call}")
        number += count
    lines += [f"return %{result}" for result in results if result is not None]
    return "\n".join(lines) + "\n"


def _types(node: Node) -> list[Type]:
    value = node.meta["val"]
    values = value if isinstance(value, list | tuple) else [value]
    return [
        Type("unknown", ()) if v is None else Type(_NAMES[v.dtype], tuple(v.shape)) for v in values
    ]


def _type_text(kind: Type) -> str:
    return f"{kind.dtype}[{', '.join(map(str, kind.shape))}]"


def _call_text(node: Node, numbers: dict[Node, int]) -> str:
    target: Any = node.target
    schema = target._schema
    if schema.name.endswith("::as_strided") and not node.args[0].meta["val"].is_contiguous():
        raise ValueError("its decomposition depends on strides")
    name = schema.name.replace("::", ".")
    if schema.overload_name:
        name += f".{schema.overload_name}"
    args = []
    for i, argument in enumerate(schema.arguments):
        given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        if given is None and i >= len(node.args) and argument.has_default_value():
            given = node.kwargs.get(argument.name, argument.default_value)
        args.append(_arg_text(given, numbers))
    return f"{name}({', '.join(args)})"


def _arg_text(arg: Any, numbers: dict[Node, int]) -> str:
    if isinstance(arg, Node | Value):
        return f"%{arg.number if isinstance(arg, Value) else numbers[arg]}"
    if isinstance(arg, bool):
        return "true" if arg else "false"
    if isinstance(arg, int | float):
        return repr(arg)
    if isinstance(arg, torch.dtype):
        return f"dtype:{_NAMES[arg]}"
    if isinstance(arg, list | tuple):
        return f"[{', '.join(_arg_text(item, numbers) for item in arg)}]"
    if arg is None or isinstance(arg, torch.device | torch.layout | torch.memory_format):
        return "none"
    if isinstance(arg, str):
        return f'"{arg}"'
    raise ValueError(f"an argument of its decomposition is {arg!r}")
