# SPDX-License-Identifier: Apache-2.0
"""`python -m spmdx.torch_xla`, and install(): what they do, and when they refuse."""

import os
import subprocess
import sys

import pytest

RUN = ["-m", "spmdx.torch_xla"]
PROGRAM = """
import sys
import torch, torch_xla, torch_xla.core.xla_model as xm, torch_xla.runtime as xr
import spmdx.torch_xla
assert torch_xla is spmdx.torch_xla and xm is spmdx.torch_xla.core.xla_model
xr.use_spmd()
print(sys.argv[1:], __name__, xr.global_runtime_device_count(), torch.ones(2, device="xla").device)
"""


def python(*arguments, folder=None, **environment):
    unset = {name: text for name, text in os.environ.items() if not name.startswith("SPMDX_")}
    if folder is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), unset.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**unset, "CPU_NUM_DEVICES": "4", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("form", ["path", "module"])
def test_a_program_runs_with_its_arguments(form, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    named = [tmp_path / "train.py"] if form == "path" else ["-m", "train"]
    done = python(*RUN, *named, "--lr", "0.1", folder=tmp_path)
    assert done.stdout == "['--lr', '0.1'] __main__ 4 xla:0\n", done.stderr


def test_without_a_program_it_says_how_it_is_used():
    done = python(*RUN)
    assert done.returncode == 1 and done.stderr.startswith("usage: python -m spmdx.torch_xla")


def test_another_torch_xla_is_shadowed_only_if_asked(tmp_path):
    (tmp_path / "torch_xla").mkdir()
    (tmp_path / "torch_xla" / "__init__.py").write_text("")
    (tmp_path / "train.py").write_text(PROGRAM)
    done = python(*RUN, tmp_path / "train.py", folder=tmp_path)
    assert done.returncode and "install(shadow=True)" in done.stderr
    done = python(*RUN, "--shadow", tmp_path / "train.py", folder=tmp_path)
    assert done.stdout == "[] __main__ 4 xla:0\n", done.stderr


def test_a_program_may_install_it_itself(tmp_path):
    (tmp_path / "train.py").write_text("import spmdx.torch_xla as s; s.install()\n" + PROGRAM)
    done = python(tmp_path / "train.py")
    assert done.stdout == "[] __main__ 4 xla:0\n", done.stderr


@pytest.mark.parametrize("setting", ["PJRT_DEVICE=TPU", "XLA_AUTO_SPMD=1"])
def test_settings_that_mean_nothing_here_are_refused(setting):
    name, _, value = setting.partition("=")
    done = python("-c", "import spmdx.torch_xla as s; s.install()", **{name: value})
    assert done.returncode and name in done.stderr.splitlines()[-1]


def test_the_import_alone_changes_nothing():
    code = "import spmdx, sys; assert not any('torch_xla' in name for name in sys.modules)"
    assert python("-c", code).returncode == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CPU_NUM_DEVICES", "x"),
        ("CPU_NUM_DEVICES", "0"),
        ("XLA_USE_BF16", "1"),
        ("XLA_DOWNCAST_BF16", "true"),
        ("XLA_AUTO_SPMD", "true"),
    ],
)
def test_a_setting_that_would_be_passed_over_is_refused(name, value, tmp_path):
    (tmp_path / "train.py").write_text("print('ran')")
    done = python(*RUN, tmp_path / "train.py", **{name: value})
    assert done.returncode and done.stdout == "" and name in done.stderr
