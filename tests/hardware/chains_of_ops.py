# SPDX-License-Identifier: Apache-2.0
"""Cases of many ops, as steps of a training make them: their ops in the forms that are recorded."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from cases import NAMES, NOTHING, Case, aten_op, name_of, number_tensor
from gathered_calls import in_order
from spmdx._segments.segment import Op, Param, Type, Value
from torch.fx.experimental.proxy_tensor import make_fx

# One number for each parameter of a step of AdamW: 1 - lr * decay, 1 - beta, …
DECAY, FIRST, SECOND, EPSILON, STEP = 0.99902, 0.10003, 0.00104, 1.0005e-3, -0.01006
_FIRST_RESULT = 1000  # inputs that are numbers come as they are met
_SAME = ("aten.detach", "aten.clone", "aten.alias", "aten.lift_fresh", "aten.lift_fresh_copy")
_VIEWS = (
    *("aten.view", "aten._unsafe_view", "aten.reshape", "aten.unsqueeze", "aten.squeeze"),
    *("aten.squeeze.dim", "aten.squeeze.dims", "aten._reshape_alias"),
)
_FULL = {"aten.zeros_like": 0, "aten.ones_like": 1, "aten.zeros": 0, "aten.ones": 1}


def chains() -> list[Case]:
    """All of them, in single precision."""
    torch.manual_seed(3)
    x, weight, target = torch.randn(6, 8), torch.randn(12, 8) / 3, torch.randn(6, 12)
    heads = [torch.randn(2, 3, 5, 4) for _ in range(4)]
    moments = [torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 3) / 9, torch.rand(4, 3)]
    return [
        traced("a layer norm, gelu and a product", _layer, [x, torch.rand(8), weight, target]),
        traced("cross entropy", _cross_entropy, [torch.randn(6, 9), torch.randn(9)]),
        traced("attention", _attention, heads),
        traced("a step of AdamW", _adamw, moments, (DECAY, FIRST, SECOND, EPSILON, STEP)),
    ]


def _layer(x, gain, weight, target):
    inner = F.gelu(F.layer_norm(x, (8,), gain)) @ weight.t()
    loss = (inner - target).square().mean()
    return loss, *torch.autograd.grad(loss, (x, gain, weight))


def _cross_entropy(x, bias):
    scores = torch.log_softmax(x + bias, -1)
    probabilities = torch.softmax(x.flip(0), -1)
    loss = -(probabilities.detach() * scores).sum(-1).mean()
    return loss, *torch.autograd.grad(loss, (x, bias))


def _attention(query, key, value, grad):
    scores = query @ key.transpose(-1, -2) * 0.5
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    made = torch.softmax(scores.masked_fill(hidden, -1e9), -1) @ value
    return made, *torch.autograd.grad(made, (query, key, value), grad)


def _adamw(weight, grad, mean, square):
    aten = torch.ops.aten
    weight = aten.mul.Scalar(weight, DECAY)
    mean = aten.lerp.Scalar(mean, grad, FIRST)
    square = aten.add.Tensor(aten.mul.Tensor(square, 0.999), aten.mul.Scalar(grad * grad, SECOND))
    root = aten.add.Scalar(aten.sqrt(square), EPSILON)
    return aten.add.Tensor(weight, aten.mul.Scalar(aten.div.Tensor(mean, root), STEP)), mean, square


def traced(
    about: str,
    function: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    params: Sequence[float] = (),
) -> Case:
    """The ops that a function calls; numbers that are parameters are told by what they are."""
    leaves = [tensor.requires_grad_(not params) for tensor in tensors]
    graph = make_fx(function, tracing_mode="fake")(*leaves).graph
    made = _Chain([tensor.detach() for tensor in tensors], params)
    for node in graph.nodes:
        made.add(node)
    return made.case(about)


class _Chain:
    """What a graph of torch.fx becomes: numbers of Python are inputs that come first."""

    def __init__(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> None:
        self.params = tuple(params)
        self.inputs = [(Type(NAMES[t.dtype], tuple(t.shape)), t) for t in tensors]
        self.values: dict[Any, Any] = {}
        self.ops: list[Op] = []
        self.free = _FIRST_RESULT
        self.results: list[tuple[int, Type]] = []

    def add(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            self.values[node] = Value(len(self.values))
        elif node.op == "output":
            for result in node.args[0]:
                kind = _type(result.meta["val"])
                self.results.append((self.values[result].number, kind))
        elif node.target is operator.getitem:
            self.values[node] = Value(self.values[node.args[0]].number + node.args[1])
        else:
            self._call(node, name_of(node.target))

    def _call(self, node: torch.fx.Node, name: str) -> None:
        made = node.meta["val"]
        if name in _SAME:
            self.values[node] = self.values[node.args[0]]
            return
        if name in ("aten.t", "aten.transpose.int"):
            rank = made.dim()
            one, other = (d % rank for d in (node.args[1:] or (0, 1)))
            order = list(range(rank))
            order[one], order[other] = other, one
            name, args = "aten.permute", [node.args[0], order]
        elif name in _VIEWS:
            name, args = "aten.view", [node.args[0], list(made.shape)]
        elif name in _FULL:
            name, args = "aten.full", [list(made.shape), _FULL[name], made.dtype]
        else:
            args = in_order(node.target, node.args, node.kwargs)
        self._append(node, name, args, made)

    def _append(self, node: Any, name: str, args: Sequence[Any], made: Any) -> None:
        arguments = aten_op(name)._schema.arguments
        told = tuple(
            self._arg(arg, "Tensor" in str(argument.type))
            for arg, argument in zip(args, arguments, strict=False)
        )
        results = made if isinstance(made, tuple | list) else [made]
        types = tuple(NOTHING if one is None else _type(one) for one in results)
        self.values[node] = Value(self.free)
        self.ops.append(Op(name, told, self.free, types))
        self.free += len(types)

    def _arg(self, arg: Any, wants_tensor: bool) -> Any:
        if isinstance(arg, list | tuple):
            return [self._arg(item, wants_tensor) for item in arg]
        if isinstance(arg, torch.fx.Node):
            return self.values[arg]
        if isinstance(arg, float) and arg in self.params:
            return Param(self.params.index(arg))
        if wants_tensor and isinstance(arg, int | float):
            tensor = number_tensor(arg)
            self.inputs.append((Type(NAMES[tensor.dtype], (), True), tensor))
            return Value(len(self.inputs) - 1)
        return arg

    def case(self, about: str) -> Case:
        return Case(
            about,
            "chains",
            "f32",
            tuple(self.ops),
            tuple(self.inputs),
            self.params,
            tuple(self.results),
        )


def _type(fake: Any) -> Type:
    return Type(NAMES[fake.dtype], tuple(fake.shape))
