# SPDX-License-Identifier: Apache-2.0
"""Whatever files say, a load ends soon, with a CheckpointError, in little memory, and unchanged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import checkpoints
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """{what was made up: [error, seconds, MiB, whether the state is what it was]}."""
    done = subprocess.run(
        [
            sys.executable,
            Path(checkpoints.__file__).with_name("hostile.py"),
            tmp_path_factory.mktemp("made"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "SPMDX_NUM_DEVICES": "4", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["manifest", "metadata", "value", "link", "pipe", "safetensors"])
def test_made_up_files_are_refused(kind, results):
    some = {name: result for name, result in results.items() if name.startswith(kind)}
    assert len(some) >= 5
    for name, (raised, seconds, grown, same) in some.items():
        assert raised.startswith("CheckpointError: ") and " Expected " in raised, (name, raised)
        assert seconds < 10 and grown < 512 and same, (name, seconds, grown, same)
