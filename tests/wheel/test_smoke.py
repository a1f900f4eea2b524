# SPDX-License-Identifier: Apache-2.0
"""What tries a wheel in an empty environment passes here, and finds what is wrong."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMOKE = pathlib.Path(__file__).with_name("smoke.py")


def tried(readme):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPMDX_")}
    environment["PYTHONPATH"] = str(ROOT / "python")
    return subprocess.run(
        [sys.executable, str(SMOKE), str(readme)], env=environment, capture_output=True, text=True
    )


def test_this_tree_passes():
    done = tried(ROOT / "README.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the README's program runs" in done.stdout and ", 0 failed" in done.stdout


def test_a_program_that_does_not_run_is_found(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("```python\nimport spmdx\nspmdx.no_such_name\n```\n")
    done = tried(page)
    assert done.returncode == 1 and "the README's program FAILS" in done.stdout
