# SPDX-License-Identifier: Apache-2.0
"""The calls that rules are tried on: what torch's own samples, and more, record in tiny sizes."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import spmdx
import torch
from exceptions import EXCEPTIONS
from more_calls import CALLS
from op_samples import entries, name_of, samples
from spmdx._rules import trials
from torch.utils import _pytree as pytree
from verdict import cotangent

# Sizes of op_db's samples: dims from 1 to 7 that 2, 3 and 4 divide, and that they do not.
SIZES = ({"XS": 2, "S": 4, "M": 6, "L": 7}, {"XS": 1, "S": 3, "M": 5, "L": 7})
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)
Call = Callable[[], Any]


def names() -> list[str]:
    """Every entry of op_db that is expected to run, and the calls of more_calls.py."""
    drawn = dict.fromkeys(name_of(op) for op in entries(DTYPES))
    assert not drawn.keys() & CALLS.keys()
    return [name for name in drawn if name not in EXCEPTIONS] + list(CALLS)


def calls_of(name: str, most: int | None) -> Iterator[Call]:
    """What is to be recorded of an entry: forward and backward of its samples, in all dtypes.

    Args:
        name: of :func:`names`.
        most: samples of each dtype and size; None for all.
    """
    if name in CALLS:
        yield from (partial(seeded, CALLS[name], sizes) for sizes in SIZES)
        return
    op = next(op for op in entries(DTYPES) if name_of(op) == name)
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        for sizes in SIZES:
            try:
                drawn = samples(op, sizes, dtype)
            except Exception:  # op_db makes no samples of these sizes
                continue
            some = [s for s in drawn[:: step_of(drawn, most)] if is_legal(op, s)]
            yield from (partial(forward_and_backward, op, s) for s in some)


def is_legal(op: Any, sample: Any) -> bool:
    """Whether plain PyTorch takes a sample; some, as indices, are drawn for other sizes."""
    tensors = [sample.leaves[at].detach().clone() for at in sample.tensors]
    value, args, kwargs = sample.replaced(tensors, "cpu")
    try:
        op(value, *args, **kwargs)
    except Exception:  # of many kinds
        return False
    return True


def step_of(drawn: list, most: int | None) -> int:
    return max(1, len(drawn) // most) if most else 1


def seeded(call: Callable[[dict[str, int]], Any], sizes: dict[str, int]) -> Any:
    torch.manual_seed(7)
    return call(sizes)


def forward_and_backward(op: Any, sample: Any) -> Any:
    """Results and gradients for random cotangents, on the device."""
    tensors = []
    for index in sample.tensors:
        leaf = sample.leaves[index]
        tensors.append(leaf.detach().clone().to("spmdx").requires_grad_(leaf.requires_grad))
    value, args, kwargs = sample.replaced(tensors, "spmdx")
    torch.manual_seed(7)
    made = pytree.tree_leaves(op(value, *args, **kwargs))
    smooth = [o for o in made if isinstance(o, torch.Tensor) and o.requires_grad]
    wanted = [t for t in tensors if t.requires_grad]
    if not smooth or not wanted:
        return made
    upstream = [cotangent(o, at).to("spmdx") for at, o in enumerate(smooth)]
    try:
        return made, torch.autograd.grad(smooth, wanted, upstream, allow_unused=True)
    except RuntimeError:  # eigenvectors have a gradient for some cotangents only
        return made


def nodes_of(call: Call, known: set[int]) -> list[trials.Node]:
    """The nodes that a call records and that are not known."""
    recording, _made = trials.record(call)
    rows = recording.nodes
    fresh = []
    for at, row in enumerate(rows):
        if row["hash"] not in known:
            known.add(row["hash"])
            fresh.append(at)
    values = recording.values() if fresh else []
    return [trials.Node(recording, at, values) for at in fresh]


OPS = re.compile(r"= ([a-z_]\w*(?:\.\w+)+)\(")


def ops_in(text: str) -> set[str]:
    """The ops of a dump."""
    return set(OPS.findall(text))


def rows_met(ops: set[str]) -> set[str]:
    """The rows of the table that ops of these names have."""
    known = set(spmdx._C.rules())
    return {op if op in known else ".".join(op.split(".")[:2]) for op in ops} & known
