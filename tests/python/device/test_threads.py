# SPDX-License-Identifier: Apache-2.0
"""Threads that plan, ask and load do not wait for each other for ever, and compute as if alone."""

import ast
import subprocess
import sys
from pathlib import Path

HAMMER = Path(__file__).parents[1] / "helpers" / "threads.py"


def test_threads_plan_ask_and_load_at_once():
    done = subprocess.run(
        [sys.executable, str(HAMMER), "--seconds", "8"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-4000:]
    turns = ast.literal_eval(done.stdout.splitlines()[-1])
    assert (
        set(turns) == {"trains", "asks", "loads", "optimises", "logs"} and min(turns.values()) > 0
    ), turns
