# SPDX-License-Identifier: Apache-2.0
"""The whole messages about meshes."""

import pytest
import spmdx
from messages import cases, eight_devices, message_of


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


MESHES = [
    (
        "size_0",
        lambda: spmdx.Mesh(range(8), (8, 0)),
        "HERE: Mesh: the mesh shape [8, 0] has an axis of size 0. Expected sizes of at least 1. "
        "Leave the axis out, or make it 1.",
    ),
    (
        "no_names",
        lambda: spmdx.Mesh(range(8), (4, 2), ()),
        "HERE: Mesh: the mesh has 2 axes but no names. Expected one name for each axis. Write as "
        "many names, or None.",
    ),
    (
        "empty_name",
        lambda: spmdx.Mesh(range(8), (4, 2), ("a", "")),
        "HERE: Mesh: an axis of the mesh has an empty name: ('a', ''). Expected a name of at "
        "least one letter. Write names like ('data', 'model').",
    ),
    (
        "name_with_a_colon",
        lambda: spmdx.Mesh(range(8), (8,), ("a:b",)),
        "HERE: Mesh: the axis name 'a:b' has a character that shardings are printed with. "
        "Expected letters, digits, '_', '-' or '.'. Write a name like 'data_parallel'.",
    ),
    (
        "shape_of_words",
        lambda: spmdx.Mesh(range(8), ("a",)),
        "HERE: Mesh: mesh_shape is ('a',). Expected integers. Write range(8) or (4, 2).",
    ),
    (
        "hybrid_ranks",
        lambda: spmdx.HybridMesh((4,), (2, 1)),
        "HERE: HybridMesh: ici_mesh_shape has 1 sizes, dcn_mesh_shape 2. Expected as many. Write "
        "1 for an axis that lies inside the blocks, or leads from one to the next only.",
    ),
    (
        "hybrid_size_0",
        lambda: spmdx.HybridMesh((4, 0), (2, 1)),
        "HERE: HybridMesh: the mesh has an axis of size 0. Expected sizes of at least 1. Leave "
        "the axis out, or make it 1.",
    ),
    (
        "hybrid_words",
        lambda: spmdx.HybridMesh((2, "a"), (2, 1)),
        "HERE: HybridMesh: ici_mesh_shape is (2, 'a'). Expected integers. Write range(8) or (4, "
        "2).",
    ),
    (
        "hybrid_ids",
        lambda: spmdx.HybridMesh((2,), (2,), device_ids=range(3)),
        "HERE: HybridMesh: the mesh shape [4] does not hold 3 devices. Expected sizes whose "
        "product (4) is the number of device ids. Change the shape, or give as many ids as it "
        "holds.",
    ),
    (
        "hybrid_devices",
        lambda: spmdx.HybridMesh((4, 2), (2, 1)),
        "HERE: HybridMesh: the mesh wants device 8, but there are 8 devices (0 to 7). Expected "
        "ids below 8. Set SPMDX_NUM_DEVICES=16, call spmdx.runtime.set_device_count(16) first, or"
        " make the mesh smaller.",
    ),
    (
        "global_mesh",
        lambda: spmdx.set_global_mesh((4, 2)),
        "HERE: set_global_mesh: the argument is a tuple. Expected a spmdx.Mesh or None. Make one "
        "with spmdx.Mesh(device_ids, mesh_shape, axis_names).",
    ),
    (
        "count_of_a_word",
        lambda: spmdx.runtime.set_device_count("8"),
        "HERE: set_device_count: '8' is no number of devices. Expected an int of at least 1. "
        "Write 8.",
    ),
    (
        "count_0",
        lambda: spmdx.runtime.set_device_count(0),
        "HERE: set_device_count: 0 is no number of devices. Expected an int of at least 1. Write "
        "8.",
    ),
]


@pytest.mark.parametrize("call, message", cases(MESHES))
def test_a_wrong_mesh_is_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message
