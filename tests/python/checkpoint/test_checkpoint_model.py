# SPDX-License-Identifier: Apache-2.0
"""Random states come back bit for bit: a sample of checkpoint_model.py."""

import pytest
from checkpoint_model import trials
from messages import eight_devices

eight_devices()

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("first", [0, 20])
def test_random_states_come_back(first, tmp_path):
    assert trials(20, tmp_path, first) == []


def test_a_load_that_fills_nothing_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("spmdx._checkpoint.load.fill", lambda *_: None)
    assert len(trials(6, tmp_path)) >= 3
