# SPDX-License-Identifier: Apache-2.0
"""Shards on an accelerator: results, gradients and random numbers are those of the CPU.

The accelerator is a CUDA device that threads play (simulated_cuda.cpp), whose memory the host
cannot read and whose streams run apart; and a GPU where there is one.
"""

import pathlib
import re

import pytest
import torch
from launch import PLAYERS, Running, run
from simulated_place import LIBRARY

HERE = pathlib.Path(__file__).parent
ON_SIMULATED = HERE / "on_simulated.py"
TRAIN, CHECKS = str(PLAYERS / "train.py"), str(HERE / "checks.py")
STEPS = "4"
NAMES = ("random", "attention", "uploads", "ops", "norms", "checkpoint")

simulator = pytest.mark.skipif(
    torch.version.cuda is not None, reason="this PyTorch has a CUDA device of its own"
)
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")
on_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs, for NCCL")


def simulated(processes: int, devices: int, *program: str, **settings) -> list[str]:
    assert LIBRARY.exists(), f"{LIBRARY} is not there: run `make build`"
    return run(str(ON_SIMULATED), processes, devices, *program, **settings)


CASES = [("data", 5, 1, 1), ("both", 6, 1, 4), ("fsdp", 7, 2, 2), ("tensor", 4, 3, 1)]


@simulator
@pytest.mark.parametrize("mode, batch, processes, devices", CASES)
def test_training_on_the_simulated_device_equals_pytorch(mode, batch, processes, devices):
    simulated(processes, devices, TRAIN, mode, str(batch), STEPS)


@simulator
@pytest.mark.parametrize("delays", ["0,3000", "300,0"])
def test_messages_wait_for_kernels_and_kernels_for_messages(delays):
    """Microseconds by which kernels of the streams are late: of computing, of messages."""
    simulated(2, 1, TRAIN, "fsdp", "5", STEPS, SIMULATED_CUDA_DELAY_US=delays)


@simulator
@pytest.mark.parametrize("late", [0, 2000])
@pytest.mark.parametrize("mode, batch, processes, devices", [("both", 7, 2, 2), ("fsdp", 7, 3, 1)])
def test_training_over_nccl_equals_pytorch(mode, batch, processes, devices, late):
    """``late``: microseconds by which messages are."""
    settings = {"SPMDX_TEST_NCCL": 1, "SIMULATED_NCCL_DELAY_US": late}
    simulated(processes, devices, TRAIN, mode, str(batch), STEPS, **settings)


@simulator
@pytest.mark.parametrize("processes, devices", [(2, 1), (3, 2), (4, 1)])
def test_native_collectives_of_nccl_make_what_messages_make(processes, devices):
    moves = str(PLAYERS / "natives.py"), "30", str(processes)
    settings = {"SPMDX_TEST_NCCL": 1, "SIMULATED_NCCL_DELAY_US": 200}
    direct = simulated(processes, devices, *moves, **settings)
    settings |= {"SPMDX_COLLECTIVES": "native", "SPMDX_DETERMINISTIC": 1}
    native = simulated(processes, devices, *moves, **settings)
    assert [said.split()[0] for said in native] == [said.split()[0] for said in direct]
    settings["SPMDX_DETERMINISTIC"] = 0
    for sums, no_sums in zip(
        simulated(processes, devices, *moves, **settings), native, strict=True
    ):
        assert int(sums.split()[1]) > int(no_sums.split()[1]) > 0


@simulator
def test_training_by_native_collectives_of_nccl_equals_pytorch():
    settings = {"SPMDX_TEST_NCCL": 1, "SPMDX_COLLECTIVES": "native"}
    simulated(3, 1, TRAIN, "fsdp", "9", STEPS, **settings)


@simulator
@pytest.mark.parametrize("collectives", ["direct", "native"])
def test_a_death_is_told_to_who_waits_for_nccl(collectives):
    settings = {"SPMDX_TEST_NCCL": 1, "SPMDX_TIMEOUT": 60, "SPMDX_COLLECTIVES": collectives}
    program = str(PLAYERS / "fail_within.py")
    with Running(str(ON_SIMULATED), 2, 1, program, **settings) as running:
        ended = running.end(120)
    said = ended[0].err
    assert re.search(r"CommError: fail_within.py:\d+: .*process 1 \(pid \d+\) has died", said), said


@simulator
@pytest.mark.parametrize("check", NAMES)
def test_what_plain_pytorch_does_on_the_cpu_is_done_there(check):
    assert simulated(1, 4, CHECKS, check) == run(CHECKS, 1, 4, check)


@simulator
def test_copies_from_the_host_are_not_overtaken():
    simulated(1, 4, CHECKS, "uploads", SIMULATED_CUDA_DELAY_US="2000,0")


@simulator
def test_streams_of_the_program_are_waited_for_and_wait():
    simulated(1, 2, CHECKS, "streams")


@simulator
def test_the_place_of_tensors_cannot_change():
    (said,) = simulated(1, 1, CHECKS, "too_late")
    assert "set_device_type: tensors lie on cuda:0 already, so that cpu comes too late." in said


@on_gpu
@pytest.mark.parametrize("mode, batch, devices", [("data", 5, 1), ("both", 6, 4), ("fsdp", 7, 3)])
def test_training_on_a_gpu_equals_pytorch(mode, batch, devices):
    run(TRAIN, 1, devices, mode, str(batch), SPMDX_DEVICE_TYPE="cuda")


@on_gpu
@pytest.mark.parametrize("check", NAMES)
def test_what_plain_pytorch_does_on_the_cpu_is_done_on_a_gpu(check):
    there = run(CHECKS, 1, 4, check, SPMDX_DEVICE_TYPE="cuda")
    assert there == run(CHECKS, 1, 4, check, SPMDX_DEVICE_TYPE="cpu")


@on_gpu
def test_processes_that_share_a_gpu_talk_over_gloo():
    settings = {"SPMDX_DEVICE_TYPE": "cuda", "SPMDX_COMM": "gloo"}
    run(TRAIN, 2, 2, "fsdp", "7", **settings)


@on_gpus
def test_processes_with_a_gpu_each_talk_over_nccl():
    run(TRAIN, 2, 1, "fsdp", "7", SPMDX_DEVICE_TYPE="cuda", SPMDX_COMM="nccl")
