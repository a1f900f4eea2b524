# SPDX-License-Identifier: Apache-2.0
"""Threads that plan, ask and load do not wait for each other for ever, and compute as if alone."""

import ast
import os
import subprocess
import sys
from pathlib import Path

HELPERS = Path(__file__).parents[1] / "helpers"
# Memory that is freed is overwritten by the C library, so that who reads it is seen.
HOSTILE = {**os.environ, "MALLOC_PERTURB_": "165"}


def turns_of(helper, seconds, **settings):
    """What each thread of a helper did; it neither crashed nor hung."""
    command = [sys.executable, str(HELPERS / helper), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **settings)
    assert done.returncode == 0, done.stderr[-4000:]
    return ast.literal_eval(done.stdout.splitlines()[-1])


def test_tensors_die_while_a_step_looks_for_those_that_are_alive():
    turns = turns_of("dying_roots.py", 8, env=HOSTILE)
    assert set(turns) == {"uploads", "makes", "storages", "walks"} and min(turns.values()) > 0, (
        turns
    )


def test_threads_plan_ask_and_load_at_once():
    turns = turns_of("threads.py", 8)
    assert (
        set(turns) == {"trains", "asks", "loads", "optimises", "logs"} and min(turns.values()) > 0
    ), turns
