# SPDX-License-Identifier: Apache-2.0
"""Batches of all kinds are split in the same way by split, by a plan and by its code."""

import collections
import dataclasses
import re
import typing

import pytest
import spmdx
import torch
from spmdx.auto import Strategy, split

X, Y = torch.arange(24.0).reshape(12, 2), torch.arange(12.0)


class Pair(typing.NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


BATCHES = {
    "tensor": X,
    "named tuple": Pair(X, Y),
    "ordered dict": collections.OrderedDict(x=X, y=Y),
    "numbers and texts": {"x": X, "scale": 2.0, "name": "a", "none": None, "empty": ()},
    "tensor without dims": [X, torch.tensor(3.0)],
    "nested": (X, {"y": (Y, [X])}),
}


def plan(strategy):
    model = torch.nn.Linear(2, 2).to("spmdx")

    def step(batches):
        for x in batches:
            (model(x).square().mean() / len(batches)).backward()

    found = spmdx.auto.search(step, model, None, X, devices=2)
    chosen = dataclasses.replace(found.candidates[0], strategy=strategy)
    return model, dataclasses.replace(found, candidates=[chosen])


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("data", [1, 2])
def test_code_splits_as_the_plan_does(kind, data):
    model, found = plan(Strategy(data=data, microbatches=3))
    space = {"model": model, "optimizer": None}
    exec(found.code(), space)
    both = found.split(BATCHES[kind]), space["split"](BATCHES[kind])
    leaves = [torch.utils._pytree.tree_flatten(parts) for parts in both]
    assert leaves[0][1] == leaves[1][1] and len(both[0]) == 3
    expected = torch.utils._pytree.tree_leaves(split(BATCHES[kind], 3))
    for a, b, plain in zip(leaves[0][0], leaves[1][0], expected, strict=True):
        if not isinstance(plain, torch.Tensor):
            assert a is b is plain
            continue
        assert torch.equal(a.cpu(), plain) and torch.equal(b.cpu(), plain)
        assert str(spmdx.get_annotation(a)) == str(spmdx.get_annotation(b))
        assert (spmdx.get_annotation(a) is not None) == (data > 1 and plain.dim() > 0)


def test_microbatches_are_rows_in_order():
    parts = split(BATCHES["nested"], 4)
    assert torch.equal(torch.cat([x for x, _ in parts]), X)
    assert torch.equal(torch.cat([rest["y"][0] for _, rest in parts]), Y)


@pytest.mark.parametrize(
    ("batch", "count", "said"),
    [
        (X, 0, "is split into 0 microbatches. Expected a number, at least 1"),
        (X, -3, "is split into -3 microbatches"),
        (X, 2.0, "is split into 2.0 microbatches"),
        (X, True, "is split into True microbatches"),
        (X[:11], 3, "the batch has tensors of [11] samples. Expected equally many"),
        ((X, Y[:6]), 3, "[6, 12] samples"),
        (torch.tensor(1.0), 1, "[] samples"),
        (None, 1, "[] samples"),
    ],
)
def test_what_cannot_be_split_is_told(batch, count, said):
    with pytest.raises(spmdx.ShardingError, match=re.escape(said)):
        split(batch, count)


def test_code_refuses_what_the_plan_refuses():
    model, found = plan(Strategy(data=2, microbatches=3))
    space = {"model": model, "optimizer": None}
    exec(found.code(), space)
    for divide in (found.split, space["split"]):
        with pytest.raises(spmdx.ShardingError, match="a multiple of 3"):
            divide(torch.ones(13, 2))
