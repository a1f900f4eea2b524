# SPDX-License-Identifier: Apache-2.0
"""Damaged checkpoints are refused, or give every bit: a sample of checkpoint_damage.py."""

import pytest
from checkpoint_damage import ANY, flip, forge, make, make_theirs, trials
from checkpoints import values
from messages import eight_devices

eight_devices()

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return make(tmp_path_factory.mktemp("ours"))


@pytest.mark.parametrize(
    ("ways", "count"), [((flip,), 150), (ANY, 60), ((forge,), 150)], ids=["bits", "files", "forged"]
)
def test_a_damaged_checkpoint_is_refused_or_equal(ways, count, ours):
    counts, wrong = trials(count, ours, ways)
    assert not wrong and counts["refused"] > 0.8 * count


def test_nor_is_a_damaged_one_of_plain_pytorch_taken(tmp_path):
    counts, wrong = trials(40, make_theirs(tmp_path), (flip,))
    assert not wrong and counts["refused"] > 20


def test_what_is_not_damaged_is_equal(ours):
    counts, wrong = trials(12, ours, (lambda *_: "nothing",))
    assert counts == {"equal": 12} and not wrong


def change_an_element(file, draw, others):
    element = values(int(file.parent.name[0]))["even"][:1, :1].numpy().tobytes()
    file.write_bytes(file.read_bytes().replace(element, bytes(4)))
    return "an element"


def test_a_wrong_value_would_be_noticed(ours, monkeypatch):
    monkeypatch.setattr("spmdx._checkpoint.load.check_sound", lambda *_: None)
    _, wrong = trials(12, ours, (change_an_element,))
    assert any("other values without a word" in text for text in wrong)
