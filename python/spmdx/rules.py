# SPDX-License-Identifier: Apache-2.0
"""Rules of users' own ops: registering one, and checking it against the op itself."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch.utils import _pytree as pytree

import spmdx._C as _C
from spmdx._base.arguments import integers
from spmdx._rules import trials
from spmdx.errors import ShardingError, naming


def register_rule(
    op: Any,
    rule: str,
    *,
    linear: str = "none",
    linear_operands: Sequence[int] | None = None,
    reduction: str = "sum",
    flops: float = 1.0,
) -> None:
    """Say how an op of ``torch.library`` may be cut, so that its operands need no gathering.

    A letter stands for each dim of each tensor operand and result. A letter in operands and
    results passes through: cut it, and the op works on shards. A letter in operands alone is
    reduced: cut it, and every device has a part of the result. ``!`` behind a letter: not to be
    cut. ``*``: all other dims, aligned at the right. ``_``: a dim without a letter. Arguments that
    are not tensors are the same on every shard, so a dim whose size one of them names wants a
    ``!``. Check a rule with :func:`check_rule`: a wrong one gives wrong numbers.

    Args:
        op: ``"ns::op"``, ``"ns::op.overload"``, or the op as in ``torch.ops.ns.op``.
        rule: as ``"bs,s->b"``.
        linear: how operands that are parts of a sum may flow to the results: ``"none"``, they are
            summed first; ``"joint"``, all ``linear_operands`` are parts, as in an addition;
            ``"each"``, one of them is, as in a product; ``"monotone"``, the only operand is parts
            of a maximum or minimum; ``"movement"``, joint for any reduction.
        linear_operands: positions of the tensor operands that this is about; None for all.
        reduction: of letters that are reduced: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``,
            ``"any"`` or ``"all"``.
        flops: floating-point operations for each element of the product of all letters' sizes.

    Raises:
        ShardingError: there is no such op, it has a rule in spmdx's own table, or the letters do
            not fit its operands and results.

    Example:
        >>> import torch, spmdx
        >>> @torch.library.custom_op("docs::weigh", mutates_args=())
        ... def weigh(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ...     return x @ weights
        >>> _ = weigh.register_fake(lambda x, weights: x.new_empty(x.shape[:1]))
        >>> spmdx.register_rule("docs::weigh", "bs,s->b", linear="each")
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh, ("data", None))
        >>> y = torch.ops.docs.weigh(x, torch.ones(4).to("spmdx"))
        >>> spmdx.explain(y).wire_bytes
        0

    Source: the notation is that of einsum; factors as in the rules of Shardy, the partitioner of
    OpenXLA (sdy.op_sharding_rule).
    """
    with naming("register_rule"):
        name, operands = _name_of(op), _operands(linear_operands)
        _require_text("the rule", rule, "bs,s->b")
        _require_text("linear", linear, "each")
        _require_text("reduction", reduction, "sum")
        if isinstance(flops, bool) or not isinstance(flops, Real) or not 0 <= flops < math.inf:
            raise ShardingError(f"flops is {flops!r}. Expected a number from 0 on. Write 2.0.")
        _C.register_rule(name, rule, linear, operands, reduction, float(flops))


def _require_text(what: str, value: Any, example: str) -> None:
    if not isinstance(value, str):
        raise ShardingError(f"{what} is {value!r}. Expected a string. Write {example!r}.")


def _operands(positions: Any) -> int:
    """A bit for each position; every bit for None."""
    if positions is None:
        return 2**64 - 1
    found = integers(positions, "linear_operands", "Write (0, 1).")
    for at in found:
        if not 0 <= at < 64:
            raise ShardingError(
                f"linear_operands has {at}. Expected positions of tensor operands, from 0 on. "
                "Write (0, 1)."
            )
    return sum(1 << at for at in set(found))


@dataclasses.dataclass(frozen=True)
class RuleCheck:
    """What :func:`check_rule` found of a rule that is right.

    Attributes:
        op: the op.
        tried: ways of cutting that were run and gave the op's own result.
        missed: layouts of operands that would work as well but that the rule does not offer, with
            the bytes a device receives because of that.
    """

    op: str
    tried: int
    missed: Mapping[str, int]


def check_rule(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    find_missed: bool = False,
) -> RuleCheck:
    """Run an op in every way that its rule offers, and compare with the op itself.

    Every letter is cut over 2, 3 and 4 devices and two letters over a mesh of 2 x 2; operands that
    may be parts of a sum are split 0.6 to 0.4. Choose small tensors whose dims have different
    sizes, some of which 2, 3 and 4 do not divide.

    Args:
        op: as for :func:`register_rule`; ops of PyTorch can be checked, too.
        args: what the op is called with; tensors are on the CPU.
        kwargs: keyword arguments likewise.
        find_missed: also look for layouts that the rule does not offer. The op is then called with
            shards that may not belong together: a kernel that does not check its operands'
            shapes can end the process.

    Returns:
        How many ways were tried, and which the rule misses.

    Raises:
        ShardingError: the op has no rule, is not recorded under its name (as one that PyTorch
            composes of other ops), or some way gives another result: the message lists them.

    Example:
        >>> import torch, spmdx
        >>> operands = torch.rand(6, 5), torch.rand(5, 7)
        >>> found = spmdx.check_rule("aten::mm", operands, find_missed=True)
        >>> found.tried > 9, dict(found.missed)
        (True, {})
        >>> @torch.library.custom_op("docs::first", mutates_args=())
        ... def first(x: torch.Tensor) -> torch.Tensor:
        ...     return x - x[:1]
        >>> _ = first.register_fake(lambda x: torch.empty_like(x))
        >>> spmdx.register_rule("docs::first", "ab->ab")
        >>> try:
        ...     spmdx.check_rule("docs::first", (torch.rand(5, 3),))
        ... except spmdx.ShardingError as error:
        ...     print(str(error)[str(error).index("the rule") :].partition(".")[0])
        the rule of docs::first is wrong in 8 of 14 ways
    """
    with naming("check_rule"):
        name = _name_of(op)
        nodes = _recorded(name, args, kwargs or {})
        found = trials.Findings()
        for node in nodes:
            if not node.has_rule:
                raise ShardingError(
                    f"{name} has no rule for {node.text}. Expected one. Register it with "
                    "spmdx.register_rule first."
                )
            for shape in trials.MESHES:
                more = node.try_rule(*shape)
                found.tried += more.tried
                found.wrong += more.wrong
            if find_missed:
                found.missed |= node.missed(2)
        if found.wrong:
            raise ShardingError(
                f"the rule of {name} is wrong in {len(found.wrong)} of {found.tried} ways. "
                "Expected the op's own result in all. Mark letters that are not to be cut with !, "
                "or declare less linear:\n  " + "\n  ".join(found.wrong[:12])
            )
    return RuleCheck(name, found.tried, found.missed)


def _name_of(op: Any) -> str:
    """``"ns::op"`` or ``"ns::op.overload"``."""
    if isinstance(op, str):
        return op
    if isinstance(op, torch._ops.OpOverload):
        return op.name()
    if isinstance(op, torch._ops.OpOverloadPacket):
        return op._qualified_op_name
    if isinstance(op, torch.library.CustomOpDef):
        return op._qualname
    raise ShardingError(
        f"the op is a {type(op).__name__}. Expected a name as 'mylib::scale', or an op of "
        "torch.ops. Define it with torch.library first."
    )


def _callable_of(name: str) -> Any:
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    found: Any = getattr(torch.ops, space, None)
    for part in filter(None, (base, overload)):
        found = getattr(found, part, None)
    if not rest or found is None:
        raise ShardingError(
            f"no op is called {name!r}. Expected the name of an op that is defined, as "
            "'mylib::scale'. Define it with torch.library first."
        )
    return found


def _recorded(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list["trials.Node"]:
    """The nodes of this name that a call records."""
    call = _callable_of(name)
    placed, named = pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().to("spmdx"), (tuple(args), dict(kwargs))
    )
    recording, _made = trials.record(lambda: call(*placed, **named))
    base = name.replace("::", ".")
    rows = [row["op"] for row in recording.nodes]
    values = recording.values()
    chosen = [
        trials.Node(recording, at, values)
        for at, op in enumerate(rows)
        if op == base or op.startswith(base + ".")
    ]
    if not chosen:
        raise ShardingError(
            f"{name} records {', '.join(dict.fromkeys(rows)) or 'nothing'}. Expected an op that is "
            "recorded under its own name. Check those ops instead."
        )
    return chosen
