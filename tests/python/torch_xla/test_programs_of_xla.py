# SPDX-License-Identifier: Apache-2.0
"""Programs of torch_xla, run as they are on 2, 3, 4 and 8 devices: `programs` holds them."""

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def functions():
    """By the names of file and function, what is run."""
    found = []
    for file in sorted(PROGRAMS.glob("[a-z]*.py")):
        if file.stem in ("common", "run_all"):
            continue
        parts = [p for p in ast.parse(file.read_text()).body if isinstance(p, ast.FunctionDef)]
        found += [f"{file.stem}.{p.name}" for p in parts if not p.name.startswith("_")]
    return found


@pytest.mark.parametrize("devices", [8, 4, 3, 2])
def test_programs_run_as_they_are(devices, tmp_path):
    unset = {name: text for name, text in os.environ.items() if not name.startswith("SPMDX_")}
    out = tmp_path / "results"
    done = subprocess.run(
        [sys.executable, "-m", "spmdx.torch_xla", str(PROGRAMS / "run_all.py"), str(out)],
        env={**unset, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = dict(json.loads(line) for line in out.read_text().splitlines())
    assert sorted(results) == sorted(functions())
    failed = {name: why for name, why in results.items() if why}
    assert not failed, "\n".join(f"{name}\n{why}" for name, why in failed.items())


def test_there_are_programs():
    assert len(functions()) > 60
