# SPDX-License-Identifier: Apache-2.0
"""The example trains in every mode, and the demo's five runs agree."""

import os
import re
import subprocess
import sys
from pathlib import Path

import models  # noqa: F401 - puts examples/ on the path and sets the number of devices
import pytest
import torch
import train_gpt

ROOT = Path(__file__).parents[3]


def command(*arguments, folder):
    """Run the example as a user does; its output, which ends well or the test fails with it."""
    where = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "train_gpt.py"), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": where, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def text():
    ids, characters = train_gpt.load_text()
    return ids, train_gpt.Config(len(characters), 2, 32, 8, 16, 0.0)


def test_every_mode_follows_eager_in_double_precision(text):
    ids, config = text
    want = train_gpt.train("eager", ids, config, 12, dtype=torch.float64).losses
    for mode in train_gpt.MODES[1:]:
        got = train_gpt.train(mode, ids, config, 12, dtype=torch.float64).losses
        assert got == pytest.approx(want, rel=1e-9), mode


def test_modes_hold_and_move_what_their_names_say(text):
    ids, config = text
    runs = {mode: train_gpt.train(mode, ids, config, 4) for mode in train_gpt.MODES}
    whole = runs["eager"].parameter_bytes
    assert runs["dp"].parameter_bytes == whole
    assert runs["fsdp"].parameter_bytes * 8 <= whole * 1.15, "uneven parameters may add a little"
    assert runs["tp"].parameter_bytes < runs["dp_tp"].parameter_bytes < whole
    assert all(runs[mode].report.wire_bytes > 0 for mode in train_gpt.MODES[1:])
    assert any(c.source and "train_gpt.py" in c.source for c in runs["dp"].report.collectives)


def test_the_learning_rate_warms_up_and_falls():
    rates = [train_gpt.learning_rate(step, 200) for step in range(200)]
    assert rates[0] == 1 / train_gpt.WARM_UP and max(rates) == 1.0
    assert rates[train_gpt.WARM_UP :] == sorted(rates[train_gpt.WARM_UP :], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)


def test_the_demo_shows_five_runs_that_agree(tmp_path):
    shown = command("--demo", "--tiny", "--steps", "30", folder=tmp_path)
    differences = [float(x) for x in re.findall(r"\d\.\de[-+]\d\d", shown)]
    assert len(differences) >= 4 and max(differences[:4]) < 1e-3, shown
    assert "train_gpt.py:" in shown and "Loss curves: gpt_losses.png" in shown
    assert (tmp_path / "gpt_losses.png").read_bytes().startswith(b"\x89PNG")


def test_one_mode_runs_from_the_command_line(tmp_path):
    shown = command("--mode", "dp_tp", "--tiny", "--steps", "12", folder=tmp_path)
    first, last = map(float, re.search(r"loss (\S+) -> (\S+)", shown).groups())
    assert last < first
