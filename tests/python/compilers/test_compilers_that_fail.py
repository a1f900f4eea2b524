# SPDX-License-Identifier: Apache-2.0
"""Compilers that crash, hang, raise or give other numbers: the program goes on, and says so."""

import os
import signal
import subprocess
import sys
import time
import warnings

import compilers_of_tests as broken
import pytest
import spmdx
import torch


def steps():
    """Three sums of two programs' segments."""
    sums = []
    for _ in range(3):
        x = torch.arange(12.0).reshape(4, 3).to("spmdx")
        y = ((x * 2 + 1).exp().log().sum(0) * 0.01).sin()
        spmdx.mark_step()
        sums.append(y.cpu())
    return torch.stack(sums)


BROKEN = {
    "Raises": "NotImplementedError: no such instruction",
    "Dies": "its process died with status 7",
    "Hangs": "it had no answer after 2 s",
    "IsWrong": "is not that of PyTorch's kernels",
    "WritesOverInputs": "it wrote over input 0, Float[4, 3]. Expected it only to read",
    "KeepsItsResults": "result 0, Float[3], lies where another run put its own. Expected new",
    "KeepsArrays": "result 0, Float[3], lies where another run put its own. Expected new",
    "LoadsNothing": "load gave a NoneType. Expected a function of a list of tensors",
    "IsInterrupted": "KeyboardInterrupt",
    "LeavesNoOp": "no op of it is named: spmdx.compilers.NotTaken: 0 ops",
    "LeavesHalfAnOp": "'float' object cannot be interpreted as an integer",
    "GivesOthers": "Expected f32",
    "GivesElsewhere": "it gave Float[3] on meta. Expected f32[3] on cpu.",
    "GivesNone": "Expected a list of tensors",
    "GivesSparse": "laid as Sparse. Expected f32",
    "RaisesAtRun": "the chip is on fire",
    "ReadsTheDevice": "a kernel uses a tensor of device spmdx or waits for steps",
    "Syncs": "a kernel uses a tensor of device spmdx or waits for steps",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("waits", [True, False], ids=["now", "beside"])
def test_the_program_goes_on_without(kind, waits, monkeypatch):
    monkeypatch.setenv("SPMDX_COMPILE_TIMEOUT", "2")
    expected = steps()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        spmdx.set_compiler(getattr(broken, kind)(), compile_now=waits)
        found = [steps()]
        spmdx.compilers.wait()
        found.append(steps())
    for sums in found:
        torch.testing.assert_close(sums, expected, rtol=0, atol=0)
    (segment,) = spmdx.explain().segments.segments
    assert segment.state == "refused" and BROKEN[kind] in segment.why
    ours = [str(w.message) for w in told if "compiler" in str(w.message)]
    assert len(ours) == 1 and BROKEN[kind] in ours[0]
    assert ours[0].startswith("test_compilers_that_fail.py:")
    assert "compiler 'op by op'" in ours[0] and "The program goes on without" in ours[0]


@pytest.mark.parametrize(
    ("scale", "where"), [(1, "an input"), (2, "another result")], ids=["input", "result"]
)
def test_results_that_lie_in_others_memory_unseen_are_refused(scale, where):
    x = torch.arange(12.0).reshape(4, 3)
    placed = x.to("spmdx")
    spmdx.set_compiler(broken.GivesOneTwice(), compile_now=True)
    with pytest.warns(UserWarning, match=f"lies in memory of {where}. Expected new tensors"):
        first, second = (placed * scale).abs(), (placed.abs() * scale).neg().neg()
        spmdx.mark_step()
        first.cpu()
    for _ in range(2):
        first.mul_(3)
        spmdx.mark_step()
    assert torch.equal(placed.cpu(), x)
    assert torch.equal(first.cpu(), x * scale * 9)
    assert torch.equal(second.cpu(), x * scale)


def test_inputs_of_one_element_are_compared_whatever_their_strides():
    """What is cut out of a row has strides that no element needs."""
    x = torch.arange(12.0).reshape(4, 3)
    spmdx.set_compiler(broken.OpByOp(), compile_now=True)
    cut = x.to("spmdx")[1:2, 2]
    spmdx.mark_step()
    found = ((cut * 2).exp() + 1).cpu()
    torch.testing.assert_close(found, (x[1:2, 2] * 2).exp() + 1)
    assert {row.state for row in spmdx.explain().segments.segments} == {"compiled"}


def test_what_is_not_checked_is_run_once():
    """``check=False`` is for what is trusted: nothing is copied, and nothing is run twice."""
    spmdx.set_compiler(broken.CountsRuns(), compile_now=True, check=False)
    x = torch.ones(3).to("spmdx")
    assert ((x * 0).exp() + 0).sum().item() == 3 * 1
    assert broken.CountsRuns.runs == 1


def test_a_compiler_that_is_not_installed_takes_nothing():
    expected = steps()
    with pytest.warns(UserWarning, match="it takes no op: ImportError: no module named 'vendor'"):
        spmdx.set_compiler(broken.KnowsNoOps(), compile_now=True)
        found = steps()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert spmdx.explain().segments.segments == []


def test_a_compiler_that_no_process_can_be_sent_is_refused():
    class Local(broken.OpByOp):
        pass

    with pytest.warns(UserWarning, match="it cannot be sent to a process of its own"):
        spmdx.set_compiler(Local(), compile_now=True)
        steps()


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        (
            "inductr",
            "no compiler is called 'inductr'. Expected one of hls, inductor, iree, onnxruntime",
        ),
        (3, "the compiler is a int. Expected a name, a spmdx.compilers.Compiler or None"),
        (broken.OpByOp, "the compiler is a type. Expected a name"),
    ],
)
def test_what_is_no_compiler_is_refused(compiler, said):
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.set_compiler(compiler)
    assert said in str(caught.value)
    assert str(caught.value).startswith("test_compilers_that_fail.py:")


def test_devices_that_no_kernel_is_for_are_refused(monkeypatch):
    monkeypatch.setattr(spmdx._C, "shard_device", lambda: "cuda:0")
    with pytest.raises(spmdx.ShardingError, match="on a device of kind 'cuda'. Expected 'cpu'"):
        spmdx.set_compiler(broken.OpByOp())
    spmdx.set_compiler(None)


WAITS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of a shell may ignore it
import spmdx, torch
from compilers_of_tests import Hangs

spmdx.set_compiler(Hangs(), compile_now=True)
x = torch.ones(4).to("spmdx")
y = x.exp().log().sum()
print("waits", flush=True)
try:
    y.item()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait_for_a_compiler(tmp_path):
    """And the program ends, though its compiler hangs."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "SPMDX_CACHE": str(tmp_path / "cache")}
    program = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert program.stdout.readline() == "waits\n"
    time.sleep(1)
    program.send_signal(signal.SIGINT)
    told, _ = program.communicate(timeout=30)
    assert told == "interrupted\n" and program.returncode == 0


@pytest.mark.parametrize("told", ["soon", "-1", "0", "nan", "inf"])
def test_a_time_that_is_none_is_refused(told, monkeypatch):
    monkeypatch.setenv("SPMDX_COMPILE_TIMEOUT", told)
    with pytest.raises(spmdx.ShardingError, match=f"TIMEOUT is '{told}'. Expected seconds above 0"):
        spmdx.set_compiler(broken.OpByOp())


def test_waiting_without_a_compiler_is_refused():
    with pytest.raises(spmdx.ShardingError, match="no compiler is in force. Expected one"):
        spmdx.compilers.wait()


def test_a_warning_that_is_an_error_is_raised_in_the_program(monkeypatch):
    expected = steps()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spmdx.set_compiler(broken.Raises())
        with pytest.raises(UserWarning, match="no such instruction"):
            for _ in range(200):
                steps()
                time.sleep(0.1)
        assert spmdx.compilers.wait() == 0
        torch.testing.assert_close(steps(), expected, rtol=0, atol=0)
    assert {s.state for s in spmdx.explain().segments.segments} == {"refused"}


def test_what_a_compiler_said_last_is_told():
    with pytest.warns(UserWarning, match=r"died with status 7 \(no licence for this chip\)"):
        spmdx.set_compiler(broken.SaysAndDies(), compile_now=True)
        steps()


OF_MAIN = """
import spmdx, torch
from compilers_of_tests import OpByOp

class Own(OpByOp):
    pass

spmdx.set_compiler(Own(), compile_now=True)
print((torch.ones(4).to("spmdx") * 2).exp().sum().item() == (torch.ones(4) * 2).exp().sum().item())
"""


def test_a_class_of_the_script_is_asked_to_be_in_a_module(tmp_path):
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "SPMDX_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", OF_MAIN], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "True\n", done.stderr
    assert "not found in a process of its own" in done.stderr
    assert "Put it in a module" in done.stderr and done.stderr.count("UserWarning") == 1
