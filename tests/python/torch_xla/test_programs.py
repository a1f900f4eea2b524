# SPDX-License-Identifier: Apache-2.0
"""Programs of torch_xla, run as they are on 2, 3, 4 and 8 devices: `programs` holds them."""

import ast
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
DEVICES = (2, 3, 4, 8)


def functions():
    """By the names of file and function, what is run."""
    found = []
    for file in sorted(PROGRAMS.glob("[a-z]*.py")):
        if file.stem in ("common", "run_all"):
            continue
        parts = [p for p in ast.parse(file.read_text()).body if isinstance(p, ast.FunctionDef)]
        found += [f"{file.stem}.{p.name}" for p in parts if not p.name.startswith("_")]
    return found


@functools.cache
def results(devices):
    """By function: why it failed, or nothing. One process runs all of them."""
    unset = {name: text for name, text in os.environ.items() if not name.startswith("SPMDX_")}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "results"
        done = subprocess.run(
            [sys.executable, "-m", "spmdx.torch_xla", str(PROGRAMS / "run_all.py"), str(out)],
            env={**unset, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(line) for line in out.read_text().splitlines())


@pytest.mark.parametrize("name", functions())
@pytest.mark.parametrize("devices", DEVICES)
def test_a_program_runs_as_it_is(devices, name):
    assert results(devices)[name] == ""


def test_there_are_programs():
    assert len(functions()) > 60
