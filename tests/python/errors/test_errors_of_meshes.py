# SPDX-License-Identifier: Apache-2.0
"""The whole messages about meshes."""

import pickle

import numpy as np
import pytest
import spmdx
import torch
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
        "HERE: Mesh: mesh_shape is ('a',). Expected integers. Write device ids first, then the "
        "shape, then the names: spmdx.Mesh(range(8), (4, 2), ('data', 'model')).",
    ),
    (
        "shape_first",
        lambda: spmdx.Mesh((4, 2), ("a", "b")),
        "HERE: Mesh: mesh_shape is ('a', 'b'). Expected integers. Write device ids first, then the "
        "shape, then the names: spmdx.Mesh(range(8), (4, 2), ('data', 'model')).",
    ),
    (
        "fraction",
        lambda: spmdx.Mesh([1.5], (1,)),
        "HERE: Mesh: device_ids is [1.5]. Expected integers. Write range(8) or (4, 2).",
    ),
    (
        "truth",
        lambda: spmdx.Mesh([True], (1,)),
        "HERE: Mesh: device_ids is [True]. Expected integers. Write range(8) or (4, 2).",
    ),
    (
        "digits",
        lambda: spmdx.Mesh("10", (2,)),
        "HERE: Mesh: device_ids is '10'. Expected integers. Write range(8) or (4, 2).",
    ),
    (
        "one_size",
        lambda: spmdx.Mesh(range(8), 8),
        "HERE: Mesh: mesh_shape is 8. Expected integers. Write range(8) or (4, 2).",
    ),
    (
        "large_id",
        lambda: spmdx.Mesh([10**30], (1,)),
        "HERE: Mesh: device_ids has 1000000000000000000000000000000. Expected integers below "
        "2**63. Write range(8) or (4, 2).",
    ),
    (
        "large_size",
        lambda: spmdx.Mesh([0], (2**63,)),
        "HERE: Mesh: mesh_shape has 9223372036854775808. Expected integers below 2**63. Write "
        "range(8) or (4, 2).",
    ),
    (
        "too_many",
        lambda: spmdx.Mesh(range(2**70), (2**33,)),
        "HERE: Mesh: the mesh has more than 1048576 devices. Expected no more. Make an axis "
        "smaller.",
    ),
    (
        "none_as_a_name",
        lambda: spmdx.Mesh(range(8), (4, 2), ("a", None)),
        "HERE: Mesh: axis_names is ('a', None). Expected a string for each axis. Write ('data', "
        "'model').",
    ),
    (
        "number_as_names",
        lambda: spmdx.Mesh(range(8), (8,), 5),
        "HERE: Mesh: axis_names is 5. Expected a string for each axis. Write ('data', 'model').",
    ),
    (
        "name_for_names",
        lambda: spmdx.Mesh(range(8), (8,), "data"),
        "HERE: Mesh: axis_names is 'data'. Expected a string for each axis. Write ('data',).",
    ),
    (
        "line_without_a_name",
        lambda: spmdx.get_1d_mesh(None),
        "HERE: get_1d_mesh: axis_name is None. Expected a string. Write 'data'.",
    ),
    (
        "line_of_an_empty_name",
        lambda: spmdx.get_1d_mesh(""),
        "HERE: get_1d_mesh: an axis of the mesh has an empty name: ('',). Expected a name of at "
        "least one letter. Write names like ('data', 'model').",
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
        "hybrid_too_many",
        lambda: spmdx.HybridMesh((2**33,)),
        "HERE: HybridMesh: the mesh has more than 1048576 devices. Expected no more. Make an axis "
        "smaller.",
    ),
    (
        "hybrid_product",
        lambda: spmdx.HybridMesh((2**40,), (2**40,), device_ids=range(4)),
        "HERE: HybridMesh: the mesh has more than 1048576 devices. Expected no more. Make an axis "
        "smaller.",
    ),
    (
        "hybrid_large_size",
        lambda: spmdx.HybridMesh((10**30,)),
        "HERE: HybridMesh: ici_mesh_shape has 1000000000000000000000000000000. Expected integers "
        "below 2**63. Write range(8) or (4, 2).",
    ),
    (
        "hybrid_names",
        lambda: spmdx.HybridMesh((2,), (2,), (None,)),
        "HERE: HybridMesh: axis_names is (None,). Expected a string for each axis. Write ('data', "
        "'model').",
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
        "HERE: set_global_mesh: the mesh is a tuple. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names).",
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


class Grid:
    """As a torch.distributed.DeviceMesh of two axes that have one name."""

    mesh = torch.arange(8).reshape(4, 2)
    mesh_dim_names = ("a", "a")


def test_a_wrong_mesh_of_pytorch_is_refused():
    assert message_of(spmdx.ShardingError, lambda: spmdx.Mesh.from_device_mesh(Grid())) == (
        "HERE: from_device_mesh: the axis name 'a' is in the mesh twice: ('a', 'a'). Expected "
        "different names. Rename one of them."
    )


def test_a_hybrid_mesh_of_no_axes_is_that_of_one_device():
    mesh = spmdx.HybridMesh((), ())
    assert mesh == spmdx.Mesh([0], (), ()) == pickle.loads(pickle.dumps(mesh))


@pytest.mark.parametrize("kind", [list, tuple, iter, set, np.array, torch.tensor])
def test_ids_are_integers_in_any_container(kind):
    assert spmdx.Mesh(kind([0, 1, 2, 3]), (4,)) == spmdx.Mesh(range(4), (4,))
