# SPDX-License-Identifier: Apache-2.0
"""docs/multi_node.md: its commands start its program, two launchers on loopback; what is read."""

import contextlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys

import pytest
from spmdx._start.environment import READ
from spmdx._start.settings import KNOWN

# In the place of Slurm's programs: tasks of one machine.
SRUN = """#!/bin/bash
shift 2  # --ntasks-per-node 8
for task in 0 1; do
  SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@" &
done
wait
"""
SCONTROL = "#!/bin/bash\nprintf '127.0.0.1\\nelsewhere\\n'\n"


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs/multi_node.md").read_text()


def marked(page, mark):
    return re.search(rf"^<!-- {mark} -->\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def folder(page, tmp_path):
    """The page's program, and Slurm's programs, where a shell finds them."""
    (program, _) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(program)
    here = f"#!/bin/bash\nexec {sys.executable}"
    programs = {
        "srun": SRUN,
        "scontrol": SCONTROL,
        "python": f'{here} "$@"\n',
        "torchrun": f'{here} -m torch.distributed.run "$@"\n',
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(stat.S_IRWXU)
    return tmp_path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def shell(command, folder):
    """A shell that runs the command in the folder, with nobody's settings."""
    ours = ("SPMDX_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    path = f"{folder / 'bin'}{os.pathsep}{kept['PATH']}"
    return subprocess.Popen(
        ["bash", "-c", command.replace("29400", free_port())],
        cwd=folder,
        env={**kept, "PATH": path, "OMP_NUM_THREADS": "1", "SPMDX_TIMEOUT": "60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process):
    try:
        out, err = process.communicate(timeout=200)
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out + err
    return out


def test_two_launchers_train_as_one_process_does(page, folder):
    lines = marked(page, "launchers").splitlines()
    assert len(lines) == 2
    both = "\n".join(f"{line} & P{i}=$!" for i, line in enumerate(lines))
    both = both.replace("HOST", "127.0.0.1")
    out = ended(shell(f"{both}\nwait $P0 && wait $P1", folder))
    assert out == marked(page, "launched")
    assert marked(page, "prints") == out.replace("4 devices", "1 devices")


def test_tasks_of_slurm_find_each_other(page, folder):
    out = ended(shell(marked(page, "tasks"), folder))
    assert out == marked(page, "launched").replace("4 devices", "2 devices")


def test_every_variable_that_is_read_is_on_the_page(page):
    told = set(re.findall(r"`([A-Z_]+)`", page))
    of_others = {name for name in READ if name not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
    assert set(KNOWN) | of_others - {"LOCAL_WORLD_SIZE"} <= told


def test_what_the_page_says_is_read_is_in_the_sources(page, root):
    table = page.split("## What is read from the environment")[1].split("\n## ")[0]
    named = {name for name in re.findall(r"`([A-Z_]{4,})`", table)}
    sources = "".join(path.read_text() for path in (root / "python/spmdx").rglob("*.py"))
    assert [name for name in sorted(named) if name not in sources] == []
