# SPDX-License-Identifier: Apache-2.0
"""Bad input gets an exception of the right type whose whole message is known."""

import inspect
import os
import re
import subprocess
import sys
import warnings

import pytest
import spmdx
import torch
from hardware import WRONG_INDICES
from spmdx._start.settings import check_environment

FILE = os.path.basename(__file__)


@pytest.fixture(scope="module")
def mesh():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    return spmdx.Mesh(range(8), (4, 2), ("data", "model"))


def message_of(error, call):
    """The message of what ``call`` raises, its lines counted from that of the call itself."""
    with pytest.raises(error) as caught:
        call()
    line = inspect.getsourcelines(call)[1]
    return str(caught.value).replace(f"{FILE}:{line}: ", "HERE: ")


def device(*shape):
    return torch.zeros(*shape).to("spmdx")


MESHES = [
    (
        (range(16), (4, 4), ("a", "b")),
        "the mesh wants device 8, but there are 8 devices (0 to 7). Expected ids below 8. "
        "Set SPMDX_NUM_DEVICES=16, call spmdx.runtime.set_device_count(16) first, or make the "
        "mesh smaller.",
    ),
    (
        ([0, 1, 1, 2], (4,), ("a",)),
        "device id 1 is in the mesh twice. Expected every device once. Leave out the repeated id.",
    ),
    (
        ([], (0,), None),
        "the mesh has no devices. Expected at least one device id. Write range(n).",
    ),
    (
        ([0, -1], (2,), ("a",)),
        "device id -1 is negative. Expected ids from 0. Write the ids of existing devices, "
        "as range(n).",
    ),
    (
        (range(4), (2, 2), ("a",)),
        "the number of axes of the mesh, 2, is not that of their names, 1: ('a',). Expected one "
        "name for each axis. Write as many names as the shape has sizes, or none.",
    ),
    (
        (range(4), (2, 2), ("a", "a")),
        "the axis name 'a' is in the mesh twice: ('a', 'a'). Expected different names. "
        "Rename one of them.",
    ),
    (
        ("abc", (3,), None),
        "device_ids is 'abc'. Expected integers. Write range(8) or (4, 2).",
    ),
]


@pytest.mark.parametrize("arguments, message", MESHES)
def test_a_mesh_that_does_not_fit_is_refused(mesh, arguments, message):
    assert message_of(ValueError, lambda: spmdx.Mesh(*arguments)) == f"HERE: Mesh: {message}"


def test_a_mesh_shape_that_does_not_hold_the_devices_is_refused(mesh):
    text = message_of(spmdx.ShardingError, lambda: spmdx.Mesh(range(8), (3, 2), ("a", "b")))
    assert text == (
        "HERE: Mesh: the mesh shape [3, 2] does not hold 8 devices. Expected sizes whose product "
        "(3·2) is the number of device ids. Change the shape, or give as many ids as it holds."
    )


SPECS = [
    (
        ("data", None, "model"),
        "dim 2 of w does not exist, so there is no room for axis 'model': w has rank 2, but its "
        "partition spec ('data', None, 'model') has 3 entries. Expected 2 entries, one for each "
        "dim. Write ('data', 'model').",
    ),
    (
        ("data",),
        "w has rank 2, but its partition spec ('data',) has 1 entry. Expected 2 entries, one for "
        "each dim. Write ('data', None).",
    ),
    (
        ("dat", None),
        "dim 0 of w is to be cut by axis 'dat', which Mesh(data=4, model=2) does not have. "
        "Expected one of 'data', 'model'. Write 'data' instead of 'dat'.",
    ),
    (
        (None, 2),
        "dim 1 of w is to be cut by axis 2, but Mesh(data=4, model=2) has 2 axes. Expected an "
        "index from 0 to 1 or a name of an axis. Write 1 or 'model' instead of 2.",
    ),
    (
        (-1, None),
        "dim 0 of w is to be cut by axis -1, a negative index. Expected an index from 0 to 1 or "
        "a name of an axis. Write 1 or 'model' instead of -1.",
    ),
    (
        ("data", "data"),
        "axis 'data' cuts w in dim 0 and in dim 1: ('data', 'data'). Expected every axis at most "
        "once. Write ('data', None).",
    ),
    (
        (1.5, None),
        "the partition spec (1.5, None) has the entry 1.5. Expected None, an axis name, an axis "
        "index, or a tuple of them. Write ('data', None).",
    ),
    (
        "data",
        "the partition spec is 'data'. Expected a tuple with one entry a dim. "
        "Write ('data', None).",
    ),
]


@pytest.mark.parametrize("spec, message", SPECS)
def test_a_spec_that_does_not_fit_names_the_tensor_and_the_line(mesh, spec, message):
    w = device(64, 128)

    def call():
        return w is None or spmdx.mark_sharding(w, mesh, spec)

    text = message_of(spmdx.ShardingError, call)
    line = inspect.getsourcelines(call)[1] + 1
    assert text == f"{FILE}:{line}: mark_sharding: {message}"


def test_the_message_names_a_parameter_by_its_module(mesh):
    net = torch.nn.Linear(4, 4).to("spmdx")
    weight = [net.weight]
    text = message_of(
        spmdx.ShardingError, lambda: net and spmdx.mark_sharding(weight[0], mesh, ("x", None))
    )
    line = inspect.getsourcelines(test_the_message_names_a_parameter_by_its_module)[1] + 4
    assert text.replace(f"{FILE}:{line}", "HERE") == (
        "HERE: mark_sharding: dim 0 of net.weight is to be cut by axis 'x', which "
        "Mesh(data=4, model=2) does not have. Expected one of 'data', 'model'. Write one of these "
        "names, or None to leave the dim whole."
    )


def test_a_cpu_tensor_is_told_the_way_to_the_device(mesh):
    x = torch.zeros(4)
    text = message_of(ValueError, lambda: spmdx.mark_sharding(x, mesh, ("data",)))
    line = inspect.getsourcelines(test_a_cpu_tensor_is_told_the_way_to_the_device)[1] + 3
    assert text == (
        f"{FILE}:{line}: mark_sharding: x is on device 'cpu'. Expected a tensor on device "
        "'spmdx'. Move it there first: x = x.to(\"spmdx\")."
    ).replace(f"{FILE}:{line}: ", "HERE: ")


def test_what_is_no_tensor_is_refused(mesh):
    text = message_of(spmdx.ShardingError, lambda: spmdx.mark_sharding([1], mesh, ("data",)))
    assert text == (
        "HERE: mark_sharding: the first argument is a list. Expected a torch.Tensor on device "
        "'spmdx'. Pass a tensor, for a module one of its parameters."
    )


def test_what_is_no_mesh_is_refused(mesh):
    x = device(4)
    text = message_of(spmdx.ShardingError, lambda: spmdx.mark_sharding(x, (4, 2), ("data",)))
    assert text == (
        "HERE: mark_sharding: the mesh is a tuple. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names)."
    )


def test_tensors_of_two_meshes_do_not_mix(mesh):
    other = spmdx.Mesh(range(8), (8,), ("all",))
    a = spmdx.mark_sharding(device(8) + 1, mesh, ("data",))
    b = spmdx.mark_sharding(device(8) + 2, other, ("all",))
    with pytest.raises(spmdx.ShardingError) as caught:
        kept = a + b
        spmdx.sync(wait=True)
        kept.cpu()
    assert re.sub(r"test_errors\.py:\d+", "F", str(caught.value)) == (
        "F: one step uses tensors of two meshes, Mesh(data=4, model=2) (annotated at F) and "
        "Mesh(all=8) (annotated at F). Expected one mesh for all that is computed together. "
        "Annotate all of it on one of them: call spmdx.mark_sharding, or spmdx.nn.pipeline for a "
        "model of stages, with that mesh."
    )
    assert kept.tolist() == [3.0] * 8  # nothing is lost


def test_a_fresh_model_outlives_a_step_that_cannot_be_planned(mesh):
    other = spmdx.Mesh(range(8), (8,), ("all",))
    torch.manual_seed(3)
    expected = [p.tolist() for p in torch.nn.Linear(8, 8).to("spmdx").parameters()]
    torch.manual_seed(3)
    net = torch.nn.Linear(8, 8).to("spmdx")
    spmdx.mark_sharding(net.weight, mesh, ("data", None))
    spmdx.mark_sharding(net.bias, other, ("all",))
    kept = net(device(3, 8))
    with pytest.raises(spmdx.ShardingError):
        spmdx.mark_step()
    assert [p.tolist() for p in net.parameters()] == expected
    assert kept.shape == (3, 8) and kept.isfinite().all()


def test_another_device_is_refused_as_in_eager():
    x, y = device(4), torch.ones(4)
    assert message_of(RuntimeError, lambda: x + y) == (
        "HERE: aten.add.Tensor: Expected all tensors to be on the same device, but found at least "
        "two devices, spmdx:0 and cpu! Move the tensor with .to('spmdx')."
    )


def test_shapes_that_do_not_fit_get_the_message_of_eager_after_the_line():
    a, b = torch.zeros(2, 3), torch.zeros(4, 5)
    with pytest.raises(RuntimeError) as eager:
        a @ b
    x, y = a.to("spmdx"), b.to("spmdx")
    assert message_of(RuntimeError, lambda: x @ y) == f"HERE: aten.mm: {eager.value}"


def test_a_host_number_is_no_other_device():
    assert (device(3) + torch.tensor(2.0) * 1.5 + 1).tolist() == [4.0, 4.0, 4.0]


def test_writing_to_an_expanded_view_is_refused_as_in_eager():
    x = device(1, 4).expand(3, 4)
    text = message_of(RuntimeError, lambda: x.add_(1))
    assert text == (
        "HERE: aten.add_.Tensor: unsupported operation: more than one element of the written-to "
        "tensor refers to a single memory location. Please clone() the tensor before performing "
        "the operation."
    )


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_an_op_that_raises_in_its_kernel_names_the_op_and_the_line():
    table, ids = device(4, 2), torch.tensor([1, 9]).to("spmdx")
    with pytest.raises(IndexError) as caught:
        rows = torch.nn.functional.embedding(ids, table)  # the line
        rows.cpu()
    line = (
        inspect.getsourcelines(test_an_op_that_raises_in_its_kernel_names_the_op_and_the_line)[1]
        + 4
    )
    assert str(caught.value) == f"{FILE}:{line}: aten.embedding: index out of range in self"


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_after_a_failed_step_the_next_one_runs():
    with pytest.raises((IndexError, RuntimeError)):
        torch.nn.functional.embedding(torch.tensor([9]).to("spmdx"), device(4, 2)).cpu()
    assert (device(2) + 1).tolist() == [1.0, 1.0]


def test_an_unknown_variable_warns_with_the_nearest_name():
    with pytest.warns(UserWarning) as caught:
        check_environment({"SPMDX_NUM_DEVICE": "8", "PATH": ""})
    assert [str(w.message) for w in caught] == [
        "the environment variable SPMDX_NUM_DEVICE is not one that spmdx reads. Expected one of "
        "SPMDX_NUM_DEVICES, SPMDX_DEVICE_TYPE, SPMDX_COMM, SPMDX_COLLECTIVES, "
        "SPMDX_DETERMINISTIC, SPMDX_TIMEOUT, SPMDX_DUMP, "
        "SPMDX_TOPOLOGY, SPMDX_CHECK, SPMDX_COMPILER, SPMDX_CACHE, SPMDX_COMPILE_TIMEOUT, "
        "SPMDX_LOG, SPMDX_PROGRESS, SPMDX_FALLBACK. Did you mean SPMDX_NUM_DEVICES?"
    ]


def test_known_variables_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_environment({"SPMDX_NUM_DEVICES": "8", "SPMDX_DUMP": "x", "SPMDX_OPT": "y"})


def test_a_device_count_that_comes_too_late_is_refused(mesh):
    text = message_of(spmdx.ShardingError, lambda: spmdx.runtime.set_device_count(4))
    assert text == (
        "HERE: set_device_count: a mesh was made for 8 devices already, 4 came too late. "
        "Expected the call before the first mesh. Move it to the top, or set SPMDX_NUM_DEVICES."
    )


@pytest.mark.parametrize("text", ["zero", "0", "-3"])
def test_a_device_count_that_is_no_number_is_refused(text):
    code = "import spmdx; spmdx.Mesh([0], (1,))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SPMDX_NUM_DEVICES": text},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1] == (
        f"spmdx.errors.ShardingError: <string>:1: Mesh: SPMDX_NUM_DEVICES is {text!r}. Expected "
        "a number of devices of at least 1. Write SPMDX_NUM_DEVICES=8."
    )


def test_shards_that_do_not_fit_are_refused(mesh):
    x = spmdx.mark_sharding(device(8), mesh, ("data",))
    text = message_of(spmdx.ShardingError, lambda: x.load_local_shards_([torch.zeros(2)] * 3))
    assert text == (
        "HERE: load_local_shards_: 3 shards for Mesh(data=4, model=2). Expected one for each of "
        "its 8 devices. Give replicas too, in the order of the mesh's positions."
    )
    text = message_of(spmdx.ShardingError, lambda: x.load_local_shards_([torch.zeros(3)] * 8))
    assert text == (
        "HERE: load_local_shards_: shard 0 has shape (3,). Expected (2,), its part of (8,) under "
        "('data',). Cut the tensor as torch.chunk does."
    )


def test_a_pattern_that_matches_nothing_is_refused(mesh):
    net = torch.nn.Linear(4, 4).to("spmdx")
    text = message_of(
        spmdx.ShardingError, lambda: spmdx.nn.shard_module(net, mesh, {"*.q": (None,)})
    )
    line = inspect.getsourcelines(test_a_pattern_that_matches_nothing_is_refused)[1] + 3
    assert text.replace(f"{FILE}:{line}", "HERE") == (
        "HERE: shard_module: the pattern '*.q' matches no parameter or buffer. Expected names like "
        "'weight', 'bias'. Mend the pattern, or drop it."
    )
