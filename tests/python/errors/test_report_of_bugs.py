# SPDX-License-Identifier: Apache-2.0
"""`python -m spmdx` prints what a report of a bug needs, and tries a program."""

import os
import subprocess
import sys

import pytest
import spmdx
import torch


def told(**variables):
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-m", "spmdx"], env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_it_tells_versions_settings_and_that_a_program_ran(devices):
    done = told(SPMDX_NUM_DEVICES=str(devices), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    rows = {what.strip(): value.strip() for what, value in rows.items()}
    assert rows["spmdx"] == f"{spmdx.__version__}, built with torch {torch.__version__}"
    assert rows["torch"].startswith(torch.__version__)
    assert rows["SPMDX_NUM_DEVICES"] == str(devices)
    assert rows["OMP_NUM_THREADS"] == "1"
    assert rows["devices"] == f"{devices} ({spmdx.runtime.device_type()}), of 1 processes"
    assert rows["a product on them"] == "equal to eager"
    assert "SPMDX_COMM" not in rows


def test_what_goes_wrong_is_part_of_the_report():
    done = told(SPMDX_TOPOLOGY="nowhere.json", SPMDX_NUM_DEVICES="2")
    assert done.returncode == 1
    assert "nowhere.json" in done.stdout + done.stderr
