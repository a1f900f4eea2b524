# SPDX-License-Identifier: Apache-2.0
"""Mistakes in and around a manual region are told with the user's line."""

import inspect
import os

import pytest
import spmdx
import torch
from messages import eight_devices
from regions import grid, line_of, numbers
from spmdx import collectives as comm

FILE = os.path.basename(__file__)


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def here():
    return inspect.currentframe().f_back.f_lineno


def double(x):
    return x * 2


ERRORS = {
    "too few specs": (
        lambda m, x: spmdx.shard_map(double, m, (), ("i", None))(x),
        "in_specs is (), 0 specs for 1 arguments",
    ),
    "rank": (
        lambda m, x: spmdx.shard_map(double, m, (("i",),), ("i", None))(x),
        "the partition spec of argument 0 is ('i',), its rank is 2",
    ),
    "axis": (
        lambda m, x: spmdx.shard_map(double, m, (("k", None),), ("i", None))(x),
        "the partition spec of argument 0 names 'k', which is no axis of Mesh(i=2, j=2)",
    ),
    "twice": (
        lambda m, x: spmdx.shard_map(double, m, (("i", "i"),), ("i", None))(x),
        "the partition spec ('i', 'i') of argument 0 names twice the axis 'i'",
    ),
    "not manual": (
        lambda m, x: spmdx.shard_map(double, m, (("j", None),), ("i", None), axes=("i",))(x),
        "names, but the region does not make manual, the axis 'j'",
    ),
    "no such manual axis": (
        lambda m, x: spmdx.shard_map(double, m, (None,), None, axes=("k",)),
        "'k' is no axis of Mesh(i=2, j=2)",
    ),
    "no mesh": (
        lambda m, x: spmdx.shard_map(double, "mesh", (None,), None),
        "the mesh is a str",
    ),
    "uneven": (
        lambda m, x: spmdx.shard_map(double, m, ((None, "i"),), ("i", None))(x),
        "dim 1 of argument 0 has the size 7, which 2 devices along 'i' cannot share evenly",
    ),
    "cpu": (
        lambda m, x: spmdx.shard_map(double, m, (("i", None),), ("i", None))(x.cpu()),
        "argument 0 is on device 'cpu'",
    ),
    "varies": (
        lambda m, x: spmdx.shard_map(double, m, (("i", None),), (None, None))(x),
        "the result may differ between the devices along 'i', which its out_spec does not name",
    ),
    "structure": (
        lambda m, x: spmdx.shard_map(lambda x: [x, x], m, (("i", None),), [("i", None)])(x),
        "the result is a list of 2, its spec is [('i', None)]",
    ),
    "spec of a number": (
        lambda m, x: spmdx.shard_map(double, m, (("i",),), None)(3),
        "argument 0 is a int and has the spec ('i',)",
    ),
    "outside": (lambda m, x: comm.all_reduce(x, "i"), "it was called outside of a manual region"),
    "reduction": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.all_reduce(x, "i", op="product"), m, (None,), None
        )(x),
        "there is no reduction 'product'",
    ),
    "bools": (
        lambda m, x: spmdx.shard_map(lambda x: comm.all_reduce(x > 0, "i"), m, (None,), None)(x),
        "the sum of tensors of dtype torch.bool is not defined",
    ),
    "mean of integers": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.all_reduce(x.long(), "i", op="mean"), m, (None,), None
        )(x),
        "the mean of tensors of dtype torch.int64 is not defined",
    ),
    "no such axis": (
        lambda m, x: spmdx.shard_map(lambda x: comm.all_gather(x, "k"), m, (None,), None)(x),
        "'k' is no manual axis here. Expected one of 'i', 'j'",
    ),
    "no such dim": (
        lambda m, x: spmdx.shard_map(lambda x: comm.all_gather(x, "i", 2), m, (None,), None)(x),
        "there is no dim 2 in a local tensor of shape (4, 7)",
    ),
    "unequal parts": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.reduce_scatter(x, "i", dim=1), m, (None,), None
        )(x),
        "dim 1 of the local shape (4, 7) is not a multiple of the 2 devices that share it",
    ),
    "pair out of range": (
        lambda m, x: spmdx.shard_map(lambda x: comm.permute(x, "i", [(0, 2)]), m, (None,), None)(x),
        "the pair (0, 2) names a device that axis 'i' of size 2 lacks",
    ),
    "pair repeated": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.permute(x, "i", [(0, 1), (1, 1)]), m, (None,), None
        )(x),
        "the pair (1, 1) repeats a sender or a receiver",
    ),
    "mark inside": (
        lambda m, x: spmdx.shard_map(
            lambda x: spmdx.mark_sharding(x * 2, m, (None, None)), m, (("i", None),), ("i", None)
        )(x),
        "the tensor is local to a manual region",
    ),
    "same axis again": (
        lambda m, x: spmdx.shard_map(
            lambda x: spmdx.shard_map(double, m, (None,), None)(x), m, (None,), None
        )(x),
        "a manual region over 'i', 'j' of Mesh(i=2, j=2) is opened within one",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_mistake_is_told_with_the_users_line(name):
    run, message = ERRORS[name]
    with pytest.raises(spmdx.ShardingError) as caught:
        run(grid(2, 2), numbers(4, 7).to("spmdx"))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{FILE}:")
    assert str(caught.value).count(". ") >= 2  # what was wrong, what was expected, how to mend it


def test_after_an_error_inside_a_region_one_is_outside_again():
    mesh = line_of(2)
    with pytest.raises(ZeroDivisionError):
        spmdx.shard_map(lambda x: 1 // 0, mesh, (None,), None)(torch.ones(2).to("spmdx"))
    with pytest.raises(spmdx.ShardingError, match="outside of a manual region"):
        comm.axis_index("i")


def test_reading_a_number_inside_a_region_is_refused():
    run = spmdx.shard_map(lambda x: x * x.sum().item(), line_of(2), (("i",),), ("i",))
    with pytest.raises(RuntimeError, match="item"):
        run(torch.ones(4).to("spmdx"))


def test_a_gradient_taken_inside_a_region_through_a_collective_is_refused():
    def local(x):
        return torch.func.grad(lambda t: comm.all_reduce((t * t).sum(), "i"))(x)

    run = spmdx.shard_map(local, line_of(2), (("i",),), ("i",))
    with pytest.raises(spmdx.ShardingError, match="taken through a collective inside"):
        run(torch.ones(4).to("spmdx"))
