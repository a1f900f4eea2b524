# SPDX-License-Identifier: Apache-2.0
"""A full disk, and files that may not grow: CheckpointError, and the checkpoint before stays."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import checkpoints
import pytest
from checkpoints import run_python

MOUNT = ["unshare", "--map-root-user", "--mount"]


def can_mount():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*MOUNT, "mount", "-t", "tmpfs", "none", "/mnt"]).returncode == 0


def test_a_full_disk_is_told_and_leaves_the_checkpoint_before(tmp_path):
    if not can_mount():
        pytest.skip("no file system may be mounted here, so none of a few MiB can be had")
    program = Path(checkpoints.__file__).with_name("checkpoint_full.py")
    done = subprocess.run(
        [*MOUNT, sys.executable, program, tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "SPMDX_NUM_DEVICES": "4", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "told 14\n"


LIMITED = """
import errno, os, resource, sys, warnings
from test_checkpoint_folder import *
warnings.simplefilter("ignore")
path = sys.argv[1]
save(state(1), path)
big = {"x": torch.ones(1 << 20), "step": 2}
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
for call in (save, lambda *a: async_save(*a).result()):
    try:
        call(big, path)
    except CheckpointError as error:
        assert error.__cause__.errno == errno.EFBIG and "File too large" in str(error), error
        print("told")
    assert os.listdir(os.path.dirname(path)) == ["c"] and loaded(path) == 1
save(state(3), path)
assert loaded(path) == 3
"""


def test_a_file_that_may_not_grow_is_told(tmp_path):
    assert run_python(LIMITED, tmp_path / "c").stdout == "told\ntold\n"
