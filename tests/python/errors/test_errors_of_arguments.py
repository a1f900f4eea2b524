# SPDX-License-Identifier: Apache-2.0
"""The whole messages about arguments of a kind that nothing takes; a refused call does nothing."""

import os

import pytest
import spmdx
import spmdx.collectives as comm
import torch
from messages import cases, device, eight_devices, grid, message_of
from spmdx import checkpoint
from spmdx.topology import Topology

NUMBER = torch.tensor(1.0)


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def rule(rule="a->a", **options):
    return spmdx.register_rule("aten::linalg_matrix_exp", rule, **options)


def inside(local):
    return spmdx.shard_map(local, grid(), (None,), None)(device(4))


ARGUMENTS = [
    (
        "rule_none",
        lambda: rule(None),
        "HERE: register_rule: the rule is None. Expected a string. Write 'bs,s->b'.",
    ),
    (
        "rule_tensor",
        lambda: rule(NUMBER),
        "HERE: register_rule: the rule is tensor(1.). Expected a string. Write 'bs,s->b'.",
    ),
    (
        "linear_none",
        lambda: rule(linear=None),
        "HERE: register_rule: linear is None. Expected a string. Write 'each'.",
    ),
    (
        "reduction_of_a_rule",
        lambda: rule(reduction=[]),
        "HERE: register_rule: reduction is []. Expected a string. Write 'sum'.",
    ),
    (
        "linear_operands",
        lambda: rule(linear_operands=["x"]),
        "HERE: register_rule: linear_operands is ['x']. Expected integers. Write (0, 1).",
    ),
    (
        "linear_operands_below_0",
        lambda: rule(linear_operands=(0, -1)),
        "HERE: register_rule: linear_operands has -1. Expected positions of tensor operands, from "
        "0 on. Write (0, 1).",
    ),
    (
        "flops",
        lambda: rule(flops="2"),
        "HERE: register_rule: flops is '2'. Expected a number from 0 on. Write 2.0.",
    ),
    (
        "reduction_list",
        lambda: inside(lambda x: comm.all_reduce(x, "i", [])),
        "HERE: all_reduce: there is no reduction []. Expected one of sum, mean, max, min. Write "
        'op="sum".',
    ),
    (
        "reduction_dict",
        lambda: inside(lambda x: comm.reduce_scatter(x, "i", op={})),
        "HERE: reduce_scatter: there is no reduction {}. Expected one of sum, mean, max, min. "
        'Write op="sum".',
    ),
    (
        "tensor_as_names",
        lambda: spmdx.Mesh(range(8), (8,), NUMBER),
        "HERE: Mesh: axis_names is tensor(1.). Expected a string for each axis. Write ('data', "
        "'model').",
    ),
    (
        "tensor_as_names_of_a_hybrid_mesh",
        lambda: spmdx.HybridMesh((2,), (2,), NUMBER),
        "HERE: HybridMesh: axis_names is tensor(1.). Expected a string for each axis. Write "
        "('data', 'model').",
    ),
    (
        "no_function",
        lambda: spmdx.shard_map(None, grid(), (None,), None),
        "HERE: shard_map: fn is a NoneType. Expected a function of tensors. Write it first: "
        "spmdx.shard_map(fn, mesh, in_specs, out_specs).",
    ),
    (
        "no_loader",
        lambda: spmdx.data.device_loader(None),
        "HERE: device_loader: the loader is a NoneType. Expected batches to loop over. Pass a "
        "DataLoader, or a list of tensors.",
    ),
    (
        "number_as_a_loader",
        lambda: spmdx.data.device_loader(NUMBER),
        "HERE: device_loader: the loader is a Tensor. Expected batches to loop over. Pass a "
        "DataLoader, or a list of tensors.",
    ),
    (
        "levels_of_numbers",
        lambda: Topology("x", torch.ones(2)),
        "HERE: Topology: the levels are tensor([1., 1.]). Expected one or more "
        "spmdx.topology.Level. Write (Level(latency_ns=5000),) for links that are all alike.",
    ),
    (
        "path_with_a_null",
        lambda: spmdx.calibrate("é\0x"),
        "HERE: calibrate: the path is 'é\\x00x'. Expected that of a file. Write 'links.json'.",
    ),
]


@pytest.mark.parametrize("call, message", cases(ARGUMENTS))
def test_what_is_no_such_argument_is_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message


STATE = {"w": torch.zeros(2)}
FOLDER = "a folder. Write 'runs/step-100'"
WEIGHTS = "a file or a folder. Write 'model.safetensors'"
PATHS = [
    ("save", lambda path: checkpoint.save(STATE, path), FOLDER),
    ("async_save", lambda path: checkpoint.async_save(STATE, path), FOLDER),
    ("load", lambda path: checkpoint.load(STATE, path), FOLDER),
    ("save_safetensors", lambda path: checkpoint.save_safetensors(STATE, path), WEIGHTS),
    ("load_safetensors", lambda path: checkpoint.load_safetensors(STATE, path), WEIGHTS),
    ("load_safetensors", lambda path: checkpoint.load_safetensors(STATE, [path]), WEIGHTS),
]


@pytest.mark.parametrize("path", [None, float("nan"), "", b"x", "a\0b", NUMBER], ids=repr)
@pytest.mark.parametrize("name, call, rest", PATHS)
def test_what_is_no_path_is_refused(tmp_path, monkeypatch, name, call, rest, path):
    monkeypatch.chdir(tmp_path)
    assert message_of(checkpoint.CheckpointError, lambda: call(path)) == (
        f"HERE: {name}: the path is {path!r}. Expected that of {rest}."
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("size", [-1, 2**63, 1.5, None, True, "8"], ids=repr)
def test_a_size_that_no_storage_has_is_refused(size):
    x = torch.arange(4.0).to("spmdx")
    storage = x.untyped_storage()
    whole = type(size) is int
    assert message_of(RuntimeError, lambda: storage.resize_(size)) == (
        f"HERE: resize_: the size is {size!r}{' bytes' if whole else ''}. Expected a whole number "
        "of bytes, from 0 on and below 2**63. Write storage.nbytes()."
    )
    assert storage.nbytes() == 16 and x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_bytes_of_the_device_are_not_swapped_by_the_host():
    storage = torch.arange(4.0).to("spmdx").untyped_storage()
    assert message_of(RuntimeError, lambda: storage.byteswap(torch.float32)) == (
        "HERE: byteswap: the storage is on device 'spmdx', whose bytes the host does not read. "
        "Expected one on the CPU. Call .cpu() on it first."
    )
    here = torch.tensor([1], dtype=torch.int16)
    here.untyped_storage().byteswap(torch.int16)
    assert here.tolist() == [256]


@pytest.mark.parametrize("name", ["set_stream", "stream"])
def test_what_is_no_stream_of_the_device_is_refused(name):
    use = getattr(torch.spmdx, name)
    for other in (3, "spmdx", torch.spmdx.Event, torch.device("spmdx")):
        assert message_of(TypeError, lambda other=other: use(other)) == (
            f"HERE: torch.spmdx.{name}: the stream is {other!r}. Expected a torch.Stream of device "
            "'spmdx'. Write torch.spmdx.current_stream()."
        )
    for one in (None, torch.spmdx.current_stream(), torch.spmdx.Stream(), torch.Stream("spmdx")):
        use(one)
    with torch.spmdx.stream(torch.spmdx.Stream()):
        assert (device(2) + 1).tolist() == [1.0, 1.0]
