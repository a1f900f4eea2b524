# SPDX-License-Identifier: Apache-2.0
"""The whole messages about hardware and about what carries messages."""

import os
import subprocess
import sys

import pytest
import spmdx
import torch
from messages import message_of
from spmdx._world import hardware, natives, plugins

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch sees a GPU here")
BUILT = "" if torch.version.cuda else " (this PyTorch is built without CUDA)"
NO_GPU = (
    f"'cuda' was asked for, and PyTorch sees no GPU{BUILT}. Expected one. See what "
    "torch.cuda.is_available() says, or write 'cpu'."
)


def refused(device_type) -> str:
    return message_of(spmdx.ShardingError, lambda: spmdx.runtime.set_device_type(device_type))


def test_hardware_that_nobody_knows_is_refused():
    assert refused("TPU") == (
        "HERE: set_device_type: 'tpu' is no kind of hardware. Expected 'cpu' or 'cuda'. Write "
        "'cuda' for NVIDIA GPUs."
    )


@no_gpu
def test_a_gpu_that_is_not_there_is_refused():
    assert refused("CUDA") == f"HERE: set_device_type: {NO_GPU}"
    assert spmdx.runtime.device_type() == "CPU"


@no_gpu
def test_the_variable_is_named_where_it_asks_for_a_gpu_that_is_not_there():
    ended = subprocess.run(
        [sys.executable, "-c", "import spmdx"],
        env=os.environ | {"SPMDX_DEVICE_TYPE": "CUDA"},
        capture_output=True,
        text=True,
    )
    said = ended.stderr.splitlines()[-1]
    assert said == f"spmdx.errors.ShardingError: SPMDX_DEVICE_TYPE is 'CUDA': {NO_GPU}"


def test_carriers_that_nobody_knows_are_refused(monkeypatch):
    monkeypatch.setenv("SPMDX_COMM", "mpi")
    with pytest.raises(spmdx.ShardingError) as caught:
        hardware.wanted_carrier()
    assert str(caught.value) == (
        "SPMDX_COMM is 'mpi'. Expected 'gloo', 'nccl' or 'hccl'. Unset it: processes with a GPU "
        "each then take nccl, others gloo."
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "SPMDX_COLLECTIVES",
            "nccl",
            "Expected 'auto' (of each collective what takes less time), 'direct' (messages between "
            "two processes each) or 'native' (the backend's own collectives). Unset it: that is "
            "'auto'.",
        ),
        (
            "SPMDX_DETERMINISTIC",
            "yes",
            "Expected 1 (sums are added up in the same order by any number of processes) or 0. "
            "Write SPMDX_DETERMINISTIC=1, or unset it.",
        ),
    ],
)
def test_ways_of_collectives_that_nobody_knows_are_refused(name, value, said, monkeypatch):
    monkeypatch.setenv("SPMDX_COLLECTIVES", "native")
    monkeypatch.setenv(name, value)
    with pytest.raises(spmdx.ShardingError) as caught:
        natives.introduction()
    assert str(caught.value) == f"{name} is {value!r}. {said}"


@pytest.mark.parametrize(
    ("collectives", "carrier", "wanted"),
    [
        ("", "gloo", (None, "direct")),
        ("auto", "nccl", (None, "native")),
        ("native", "gloo", ("native", "direct")),
        ("direct", "hccl", ("direct", "direct")),
    ],
)
@pytest.mark.parametrize("deterministic", ["0", "1", "torch"])
def test_sums_may_be_native_where_their_order_may_change(
    collectives, carrier, wanted, deterministic, monkeypatch
):
    told = []
    monkeypatch.setattr(natives, "_policy", natives.policy())
    monkeypatch.setattr(natives._C, "set_natives", lambda *policy: told.append(policy))
    monkeypatch.setenv("SPMDX_COLLECTIVES", collectives)
    monkeypatch.setenv("SPMDX_DETERMINISTIC", "1" if deterministic == "1" else "")
    torch.use_deterministic_algorithms(deterministic == "torch")
    try:
        natives.settle(natives.introduction(), carrier)
    finally:
        torch.use_deterministic_algorithms(False)
    assert told == [(*wanted, deterministic == "0")]


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (
            None,
            "no package has registered a backend of that name with torch.distributed. Expected "
            "one, imported before the first step; torch_npu, which has Huawei's, cannot be "
            "imported beside spmdx. Write SPMDX_COMM=gloo.",
        ),
        (
            ["npu", "hpu"],
            "the backend of that name carries what lies on 'npu' or 'hpu'. Expected one for 'cpu': "
            "shards lie in the memory of the host. Write SPMDX_COMM=gloo.",
        ),
        (["npu", "cpu"], ""),
    ],
)
def test_hccl_is_a_backend_for_the_memory_of_hosts(places, said, monkeypatch):
    monkeypatch.setenv("SPMDX_COMM", "hccl")
    backend = hardware.dist.Backend
    if places is not None:
        monkeypatch.setattr(backend, "backend_list", [*backend.backend_list, "hccl"])
        monkeypatch.setitem(backend.backend_capability, "hccl", places)
    if not said:
        assert hardware.carrier(["cpu", "cpu"]) == "hccl"
        return
    with pytest.raises(spmdx.ShardingError) as caught:
        hardware.carrier(["cpu", "cpu"])
    assert str(caught.value) == f"SPMDX_COMM is 'hccl', and {said}"


def test_a_backend_that_makes_something_else_is_refused(monkeypatch):
    made = hardware.dist.Backend._BackendPlugin(lambda *given: "a group", False)
    monkeypatch.setitem(hardware.dist.Backend._plugins, "HCCL", made)
    with pytest.raises(spmdx.ShardingError) as caught:
        plugins.group("hccl", None, 0, 2)
    assert str(caught.value) == (
        "the backend 'hccl' made a str. Expected a backend of c10d. Write SPMDX_COMM=gloo."
    )


# What is there: kind of hardware, whether PyTorch has NCCL, the hardware of two processes.
PLACES = [
    ("cpu", True, ["cpu", "cpu"], "shards lie on the CPU"),
    ("cuda", False, ["a", "b"], "this PyTorch has no NCCL"),
    ("cuda", True, ["a", "a"], "processes share a GPU"),
    ("cuda", True, ["a", "b"], ""),
]


@pytest.mark.parametrize("kind, has_nccl, identities, why", PLACES)
def test_nccl_carries_messages_between_gpus_and_nothing_else(
    kind, has_nccl, identities, why, monkeypatch
):
    monkeypatch.setattr(hardware, "kind", lambda: kind)
    monkeypatch.setattr(hardware.dist, "is_nccl_available", lambda: has_nccl)
    monkeypatch.delenv("SPMDX_COMM", raising=False)
    assert hardware.carrier(identities) == ("gloo" if why else "nccl")
    monkeypatch.setenv("SPMDX_COMM", "gloo")
    assert hardware.carrier(identities) == "gloo"
    monkeypatch.setenv("SPMDX_COMM", "nccl")
    if not why:
        assert hardware.carrier(identities) == "nccl"
        return
    with pytest.raises(spmdx.ShardingError) as caught:
        hardware.carrier(identities)
    assert str(caught.value) == (
        f"SPMDX_COMM is 'nccl', but {why}. Expected SPMDX_DEVICE_TYPE=cuda, a PyTorch with NCCL "
        "and a GPU for each process. Write SPMDX_COMM=gloo."
    )
