# SPDX-License-Identifier: Apache-2.0
"""The whole messages of spmdx.shard_map and of the collectives inside it."""

import pytest
import spmdx
import spmdx.collectives as comm
import torch
from messages import cases, device, eight_devices, grid, message_of


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def region(local, *args, in_specs=None, out_specs=None, axes=None):
    """Runs ``local`` on the global ``args``, a 4x4 tensor where there are none."""
    args = args or (device(4, 4),)
    in_specs = (None,) * len(args) if in_specs is None else in_specs
    return spmdx.shard_map(local, grid(), in_specs, out_specs, axes=axes)(*args)


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


def same(*args):
    return args if len(args) > 1 else args[0]


def marked(x):
    return spmdx.mark_sharding(x, grid(), (None, None))


REGIONS = [
    (
        "mesh",
        lambda: spmdx.shard_map(same, (4, 2), (None,), None)(device(4)),
        "HERE: shard_map: the mesh is a tuple. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names).",
    ),
    (
        "axes",
        lambda: region(same, axes=("i", "k")),
        "HERE: shard_map: 'k' is no axis of Mesh(i=4, j=2). Expected some of 'i', 'j'. Leave axes"
        " out for all of them.",
    ),
    (
        "no_axes",
        lambda: region(same, axes=()),
        "HERE: shard_map: axes is (). Expected at least one axis of Mesh(i=4, j=2). Leave axes "
        "out for all of them.",
    ),
    (
        "too_few_specs",
        lambda: region(same, device(4), device(4), in_specs=(None,)),
        "HERE: shard_map: in_specs is (None,), 1 specs for 2 arguments. Expected one spec for "
        "each argument. Write (('data', None), None): a tuple of specs.",
    ),
    (
        "no_tuple_of_specs",
        lambda: region(same, in_specs="i"),
        "HERE: shard_map: in_specs is 'i', 0 specs for 1 arguments. Expected one spec for each "
        "argument. Write (('data', None), None): a tuple of specs.",
    ),
    (
        "another_structure",
        lambda: region(same, [device(4), device(4)], in_specs=([None],)),
        "HERE: shard_map: argument 0 is a list of 2, its spec is [None]. Expected specs in the "
        "same structure. Write a spec for each tensor of it, or None where all of them are the "
        "same on all devices.",
    ),
    (
        "spec_of_a_list",
        lambda: region(same, [device(4)], in_specs=(3,)),
        "HERE: shard_map: argument 0 is a list of 1, its spec is 3. Expected specs in the same "
        "structure. Write a spec for each tensor of it, or None where all of them are the same on"
        " all devices.",
    ),
    (
        "another_key",
        lambda: region(same, {"w": device(4)}, in_specs=({"b": None},)),
        "HERE: shard_map: argument 0 is a dict of 1, its spec is {'b': None}. Expected specs in "
        "the same structure. Write a spec for each tensor of it, or None where all of them are "
        "the same on all devices.",
    ),
    (
        "too_short_spec",
        lambda: region(same, in_specs=(("i",),)),
        "HERE: shard_map: the partition spec of argument 0 is ('i',), its rank is 2. Expected one"
        " entry for each dim. Write ('i', None).",
    ),
    (
        "spec_of_a_number",
        lambda: region(same, device(()), in_specs=(("i",),)),
        "HERE: shard_map: the partition spec of argument 0 is ('i',), its rank is 0. Expected one"
        " entry for each dim. Write ().",
    ),
    (
        "out_spec_too_short",
        lambda: region(same, out_specs=("i",)),
        "HERE: shard_map: the partition spec of the result is ('i',), its rank is 2. Expected one"
        " entry for each dim. Write ('i', None).",
    ),
    (
        "axis_twice",
        lambda: region(same, in_specs=(("i", "i"),)),
        "HERE: shard_map: the partition spec ('i', 'i') of argument 0 names twice the axis 'i'. "
        "Expected each of 'i', 'j' at most once. Leave it out.",
    ),
    (
        "axis_not_manual",
        lambda: region(same, in_specs=(("j", None),), axes=("i",)),
        "HERE: shard_map: the partition spec ('j', None) of argument 0 names, but the region does"
        " not make manual, the axis 'j'. Expected each of 'i' at most once. Leave it out.",
    ),
    (
        "unknown_axis",
        lambda: region(same, in_specs=(("k", None),)),
        "HERE: shard_map: the partition spec of argument 0 names 'k', which is no axis of "
        "Mesh(i=4, j=2). Expected one of 'i', 'j'. Write None for a dim that is not cut.",
    ),
    (
        "cpu_argument",
        lambda: region(same, torch.ones(4)),
        "HERE: shard_map: argument 0 is on device 'cpu'. Expected a tensor on device 'spmdx'. "
        'Move it there first: tensor.to("spmdx").',
    ),
    (
        "cpu_result",
        lambda: region(lambda x: torch.ones(4)),
        "HERE: shard_map: the result is on device 'cpu'. Expected a tensor on device 'spmdx'. "
        'Move it there first: tensor.to("spmdx").',
    ),
    (
        "spec_of_no_tensor",
        lambda: region(lambda n: device(n), 3, in_specs=(("i",),)),
        "HERE: shard_map: argument 0 is a int and has the spec ('i',). Expected None for what is "
        "no tensor. Write None.",
    ),
    (
        "mark_sharding",
        lambda: region(marked, in_specs=(("i", None),)),
        "HERE: mark_sharding: the tensor is local to a manual region. Expected a global one: "
        "inside, specs and collectives say where things are. Mark what goes into the region or "
        "comes out of it.",
    ),
    (
        "uneven",
        lambda: region(same, device(6, 3), in_specs=((("i", "j"), None),)),
        "HERE: shard_map: dim 0 of argument 0 has the size 6, which 8 devices along 'i', 'j' "
        "cannot share evenly. Expected a multiple: in a manual region every device has the same "
        "shape. Pad the tensor to 8, or do not cut the dim.",
    ),
    (
        "varying_result",
        lambda: region(same, in_specs=(("i", "j"),), out_specs=("i", None)),
        "HERE: shard_map: the result may differ between the devices along 'j', which its out_spec"
        " does not name. Expected one value. Reduce or gather it over 'j' first, or name 'j' in "
        "the spec to keep every device's part.",
    ),
]


@pytest.mark.parametrize("call, message", cases(REGIONS))
def test_a_region_that_does_not_fit_its_tensors_is_refused(call, message):
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
