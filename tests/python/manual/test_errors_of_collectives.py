# SPDX-License-Identifier: Apache-2.0
"""The whole messages of the collectives of a manual region."""

import pytest
import spmdx
import spmdx.collectives as comm
import torch
from messages import cases, device, eight_devices, message_of, region


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def pairs(*given):
    return lambda x: comm.permute(x, "i", given)


COLLECTIVES = [
    (
        "unknown_reduction",
        lambda x: comm.all_reduce(x, "i", "prod"),
        "HERE: all_reduce: there is no reduction 'prod'. Expected one of sum, mean, max, min. "
        'Write op="sum".',
    ),
    (
        "sum_of_bools",
        lambda x: comm.all_reduce(x > 0, "i"),
        "HERE: all_reduce: the sum of tensors of dtype torch.bool is not defined. Expected "
        "numbers. Convert the tensor first: tensor.float().",
    ),
    (
        "mean_of_integers",
        lambda x: comm.reduce_scatter(x.long(), "i", op="mean"),
        "HERE: reduce_scatter: the mean of tensors of dtype torch.int64 is not defined. Expected "
        "numbers with a fraction. Convert the tensor first: tensor.float().",
    ),
    (
        "number",
        lambda x: comm.all_reduce(3, "i"),
        "HERE: all_reduce: the first argument is 3. Expected a tensor on device 'spmdx'. Move it "
        'there first: tensor.to("spmdx").',
    ),
    (
        "cpu_tensor",
        lambda x: comm.all_gather(torch.ones(2), "i"),
        "HERE: all_gather: the first argument is on device cpu. Expected a tensor on device "
        "'spmdx'. Move it there first: tensor.to(\"spmdx\").",
    ),
    (
        "unknown_axis",
        lambda x: comm.all_reduce(x, "k"),
        "HERE: all_reduce: 'k' is no manual axis here. Expected one of 'i', 'j'. Name an axis of "
        "spmdx.shard_map's mesh.",
    ),
    (
        "no_axis",
        lambda x: comm.all_reduce(x, ()),
        "HERE: all_reduce: the axes are (). Expected at least one, and none twice. Write 'i'.",
    ),
    (
        "axis_twice",
        lambda x: comm.all_gather(x, ("i", "i")),
        "HERE: all_gather: the axes are ('i', 'i'). Expected at least one, and none twice. Write "
        "'i'.",
    ),
    (
        "number_as_an_axis",
        lambda x: comm.all_reduce(x, 0),
        "HERE: all_reduce: 0 is no manual axis here. Expected one of 'i', 'j'. Name an axis of "
        "spmdx.shard_map's mesh.",
    ),
    (
        "two_axes_for_one",
        lambda x: comm.permute(x, ("i", "j"), []),
        "HERE: permute: the axis is ('i', 'j'). Expected the name of one axis. Write 'data'.",
    ),
    (
        "number_for_an_axis",
        lambda x: x * comm.axis_size(0),
        "HERE: axis_size: the axis is 0. Expected the name of one axis. Write 'data'.",
    ),
    (
        "unknown_dim",
        lambda x: comm.all_gather(x, "i", 2),
        "HERE: all_gather: there is no dim 2 in a local tensor of shape (4, 4). Expected a dim "
        "from -2 to 1. Mind that shapes are local here.",
    ),
    (
        "dim_of_a_number",
        lambda x: comm.all_gather(x.sum(), "i"),
        "HERE: all_gather: the local tensor has no dims. Expected at least one. Give it one "
        "first: tensor.reshape(1).",
    ),
    (
        "unequal_parts",
        lambda x: comm.reduce_scatter(x[:3], "i"),
        "HERE: reduce_scatter: dim 0 of the local shape (3, 4) is not a multiple of the 4 devices"
        " that share it. Expected equal parts. Pad the tensor to 4 first.",
    ),
    (
        "unequal_parts_of_two_axes",
        lambda x: comm.reduce_scatter(x, ("i", "j"), 1),
        "HERE: reduce_scatter: dim 1 of the local shape (4, 4) is not a multiple of the 8 devices"
        " that share it. Expected equal parts. Pad the tensor to 8 first.",
    ),
    (
        "unequal_parts_exchanged",
        lambda x: comm.all_to_all(x[:3], "i", 0, 1),
        "HERE: all_to_all: dim 0 of the local shape (3, 4) is not a multiple of the 4 devices "
        "that share it. Expected equal parts. Pad the tensor to 4 first.",
    ),
    (
        "dim_of_a_word",
        lambda x: comm.all_gather(x, "i", "rows"),
        "HERE: all_gather: there is no dim 'rows' in a local tensor of shape (4, 4). Expected a "
        "dim from -2 to 1. Mind that shapes are local here.",
    ),
    (
        "no_pairs",
        lambda x: comm.permute(x, "i", [1, 2]),
        "HERE: permute: the pairs are [1, 2]. Expected (sender, receiver) pairs of ints. Write "
        "[(0, 1)].",
    ),
    (
        "unknown_receiver",
        pairs((0, 4)),
        "HERE: permute: the pair (0, 4) names a device that axis 'i' of size 4 lacks. Expected "
        "coordinates from 0 to 3. Count along the axis.",
    ),
    (
        "unknown_sender",
        pairs((-1, 0)),
        "HERE: permute: the pair (-1, 0) names a device that axis 'i' of size 4 lacks. Expected "
        "coordinates from 0 to 3. Count along the axis.",
    ),
    (
        "receiver_twice",
        pairs((0, 1), (2, 1)),
        "HERE: permute: the pair (2, 1) repeats a sender or a receiver. Expected each at most "
        "once. Use all_gather to send to many.",
    ),
    (
        "sender_twice",
        pairs((0, 1), (0, 2)),
        "HERE: permute: the pair (0, 2) repeats a sender or a receiver. Expected each at most "
        "once. Use all_gather to send to many.",
    ),
    (
        "nested_axis",
        lambda x: region(lambda y: y, x, axes=("j",)),
        "HERE: shard_map: a manual region over 'j' of Mesh(i=4, j=2) is opened within one over "
        "'i', 'j' of Mesh(i=4, j=2). Expected other axes of the same mesh. Say with axes=(…) "
        "which axes each region makes manual.",
    ),
]


@pytest.mark.parametrize("local, message", cases(COLLECTIVES))
def test_a_wrong_call_inside_a_region_is_refused(local, message):
    assert message_of(spmdx.ShardingError, lambda: region(local)) == message


OUTSIDE = [
    (
        "all_reduce",
        lambda: comm.all_reduce(device(4), "i"),
        "HERE: all_reduce: it was called outside of a manual region. Expected a call from a "
        "function that spmdx.shard_map runs. Outside, tensors are global: use torch's own "
        "functions.",
    ),
    (
        "axis_index",
        lambda: comm.axis_index("i"),
        "HERE: axis_index: it was called outside of a manual region. Expected a call from a "
        "function that spmdx.shard_map runs. Outside, tensors are global: use torch's own "
        "functions.",
    ),
]


@pytest.mark.parametrize("call, message", cases(OUTSIDE))
def test_a_collective_outside_of_a_region_is_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message


def test_a_gradient_through_a_collective_inside_is_refused():
    def local(x):
        return torch.func.grad(lambda t: comm.all_reduce((t * t).sum(), "i"))(x)

    assert message_of(spmdx.ShardingError, lambda: region(local)) == (
        "a gradient was taken through a collective inside a manual region. Expected it to be taken "
        "outside. Call backward() on what the function of spmdx.shard_map returns."
    )


def test_after_an_error_one_is_outside_again():
    with pytest.raises(ZeroDivisionError):
        region(lambda x: 1 // 0)
    assert (device(4) + 1).tolist() == [1.0] * 4
    assert comm.all_reduce.__name__ in message_of(spmdx.ShardingError, OUTSIDE[0][1])
