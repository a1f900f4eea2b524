# SPDX-License-Identifier: Apache-2.0
"""Progress is shown on a terminal, of what takes longer than a second, and nowhere else."""

import os
import pty
import re
import select
import subprocess
import sys

import pytest

SLOW_SAVE = """
import time, torch, spmdx
from spmdx._checkpoint import save
put = save._put
save._put = lambda data, file: (time.sleep({seconds}), put(data, file))
state = {{str(i): torch.ones(1000) for i in range(4)}}
spmdx.checkpoint.save(state, "{folder}")
"""
SLOW_PLAN = """
import time, torch, spmdx
from spmdx._base import progress
took = iter([0.0, 0.1, 1.5, 1.7, 1.9, 0.0])
spmdx._C.planning_ns = lambda: int(1e9 * next(took, 0.0))
torch.ones(3).to("spmdx").exp().sum().item()
time.sleep(2.5)
"""


def on_terminal(program, **environment):
    """What a program writes to a stderr that is a terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=child,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment},
    )
    os.close(child)
    said = b""
    while process.poll() is None or select.select([parent], [], [], 0.1)[0]:
        if not select.select([parent], [], [], 0.1)[0]:
            continue
        try:
            more = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        said += more
    os.close(parent)
    assert process.wait() == 0, said.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())


def slow_save(tmp_path, seconds):
    return SLOW_SAVE.format(seconds=seconds, folder=tmp_path / "saved")


def test_a_save_that_takes_long_shows_a_bar(tmp_path):
    said = on_terminal(slow_save(tmp_path, 0.4))
    assert "spmdx: saving" in said
    assert "16.0" in said and "kB" in said  # of the bytes


@pytest.mark.parametrize("seconds, settings", [(0.0, {}), (0.4, {"SPMDX_PROGRESS": "off"})])
def test_nothing_is_shown_otherwise(tmp_path, seconds, settings):
    assert "spmdx" not in on_terminal(slow_save(tmp_path, seconds), **settings)


def test_nothing_is_shown_where_stderr_is_a_file(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", slow_save(tmp_path, 0.4)], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == "" and done.stdout == ""


def test_a_plan_that_takes_long_shows_that_it_is_made():
    said = on_terminal(SLOW_PLAN)
    assert "spmdx: planning" in said


def test_how_long_a_plan_is_being_made_is_known():
    """The program thread plans without the GIL, so another thread sees it."""
    program = """
import threading, time, torch, spmdx
seen, stop = [], threading.Event()
def look():
    while not stop.is_set():
        seen.append(spmdx._C.planning_ns())
thread = threading.Thread(target=look)
thread.start()
mesh = spmdx.get_1d_mesh("x")
x = spmdx.mark_sharding(torch.ones(64, 64).to("spmdx"), mesh, ("x", None))
for i in range(400):
    x = (x @ x).softmax(-1)
spmdx.mark_step()
stop.set(); thread.join()
assert max(seen) > 1e6, max(seen)
assert spmdx._C.planning_ns() == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "SPMDX_NUM_DEVICES": "4"},
    )
    assert done.returncode == 0, done.stderr
