# SPDX-License-Identifier: Apache-2.0
"""The examples as commands: they learn, print that they did, and run as several processes."""

import os
import re
import subprocess
import sys

import pytest
import spmdx
from example_cases import CASES, EXAMPLES, module_of

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

STEPS = {"train_gan": "300", "generate": "60", "train_policy": "25"}


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs an example's `main` with these words; what it prints."""

    def call(name, *words):
        monkeypatch.setattr(sys, "argv", [name, *words])
        module_of(name).main()
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("name", CASES)
def test_it_learns(name, command):
    shown = command(name, "--cpu", "--steps", STEPS.get(name, "25"))
    for first, last in re.findall(r"([\d.]+)%? -> ([\d.]+)", shown):
        better = float(last) > float(first) if "caught" in shown else float(last) < float(first)
        assert better, shown
    assert "->" in shown


@pytest.mark.parametrize("name", CASES)
def test_it_says_how_to_run_it(name, command, capsys):
    with pytest.raises(SystemExit) as ended:
        command(name, "--help")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("--steps", "--devices", "--cpu"))
    assert f"python examples/{name}.py " in module_of(name).__doc__


def test_the_command_runs_on_8_devices(command):
    plain = command("train_vit", "--cpu", "--steps", "3")
    assert command("train_vit", "--devices", "8", "--steps", "3") == plain


def test_two_processes_print_what_one_does(command, tmp_path):
    plain = command("train_llama", "--cpu", "--steps", "3")
    paths = [str(EXAMPLES.parent / "python"), os.environ.get("PYTHONPATH")]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        + [str(EXAMPLES / "train_llama.py"), "--steps", "3"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain
