# SPDX-License-Identifier: Apache-2.0
"""Segments of modules, for compilers that are asked for one program and not for plans."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from spmdx._segments.fx_nodes import name_of, type_of, types_of
from spmdx._segments.segment import Op, Segment, Type, Value


def segment_of(
    module: torch.nn.Module, examples: Sequence[torch.Tensor]
) -> tuple[Segment, dict[int, torch.Tensor]]:
    """What a module does with tensors like these.

    Args:
        module: it is traced as it is: call ``eval()`` before.
        examples: tensors that it is called with.

    Returns:
        A segment whose inputs are these tensors, then the module's parameters and buffers, and
        constants of its code, and whose outputs are all tensors that it returns; and parameters,
        buffers and constants, by their numbers.

    Raises:
        ValueError: an op has an argument, or a tensor a dtype, that segments have not.

    Example:
        >>> import spmdx, torch
        >>> segment, kept = spmdx.compilers.segment_of(torch.nn.Linear(2, 3), [torch.ones(1, 2)])
        >>> sorted(kept)
        [1, 2]
    """
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_leaves

    kept = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    count = len(examples)

    def run(*tensors: torch.Tensor) -> Any:
        state = dict(zip(kept, tensors[count:], strict=True))
        return tree_leaves(torch.func.functional_call(module, state, tensors[:count]))

    with torch.no_grad():
        given = [*examples, *kept.values()]
        made = make_fx(torch.func.functionalize(run))(*given)
        # Once more: composite ops of PyTorch write in place below what is made functional.
        made = make_fx(torch.func.functionalize(made))(*given)
    constants = {count + i: tensor.detach() for i, tensor in enumerate(kept.values())}
    return _segment(made, constants), constants


def _segment(module: torch.fx.GraphModule, constants: dict[int, torch.Tensor]) -> Segment:
    """Of its graph; what its code has of constants is added to them."""
    graph = module.graph
    graph.eliminate_dead_code()
    numbers: dict[Node, int] = {}
    inputs: list[tuple[int, Type]] = []
    ops: list[Op] = []
    count = 0
    node: Any
    for node in graph.nodes:
        if node.op == "placeholder":
            numbers[node] = count
            inputs.append((count, types_of(node)[0]))
            count += 1
        elif node.op == "call_function" and not hasattr(node.target, "_schema"):  # getitem
            numbers[node] = numbers[node.args[0]] + node.args[1]
        elif node.op == "call_function" and name_of(node) == "aten.lift_fresh_copy":  # a constant
            numbers[node] = numbers[node.args[0]]
        elif node.op == "call_function":
            numbers[node] = count
            ops.append(Op(name_of(node), tuple(_args(node, numbers)), count, types_of(node)))
            count += len(ops[-1].types)
        elif node.op == "get_attr":
            numbers[node] = count
            constants[count] = getattr(module, str(node.target)).detach()
            inputs.append((count, type_of(constants[count])))
            count += 1
        elif node.op != "output":
            raise ValueError(f"the module has a {node.op}. Expected ops of tensors")
    outputs: Any = graph.output_node().args[0]
    results = tuple((numbers[one], types_of(one)[0]) for one in outputs)
    return Segment("", tuple(inputs), 0, tuple(ops), results)


def _args(node: Node, numbers: dict[Node, int]) -> list[Any]:
    def arg(given: Any) -> Any:
        if isinstance(given, Node):
            return Value(numbers[given])
        if isinstance(given, list | tuple):
            return [arg(item) for item in given]
        return None if isinstance(given, torch.device | torch.layout) else given

    schema: Any = node.target._schema  # type: ignore[union-attr]
    named = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False))
    return [arg({**named, **node.kwargs}.get(a.name, _default(a))) for a in schema.arguments]


def _default(argument: Any) -> Any:
    return argument.default_value if argument.has_default_value() else None
