# SPDX-License-Identifier: Apache-2.0
"""The whole messages of spmdx.shard_map."""

import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, grid, message_of, region


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


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
