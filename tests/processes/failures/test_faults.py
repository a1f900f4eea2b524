# SPDX-License-Identifier: Apache-2.0
"""A few of the programs that `make faults` plays by the thousand, and defects it has to find."""

import re

import pytest
from fault_drafts import KINDS, LAYERS, WORLDS, draft
from fault_worlds import Patience, play
from hardware import WRONG_INDICES
from run_faults import Hunt

PATIENCE = Patience(timeout=60, limit=180)  # on a machine that does other things too
SAMPLE = range(10)


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_programs_end_as_they_do_without_faults():
    hunt = Hunt(list(SAMPLE), 1, PATIENCE)
    wrong = [f"{v.task}: {v.trouble}\n{v.story}" for v in hunt.verdicts if v.trouble]
    assert not wrong, "\n".join(wrong)
    assert sum(v.told for v in hunt.verdicts) >= len(SAMPLE) // 2
    assert {v.task for v in hunt.verdicts} >= {str(seed) for seed in SAMPLE}


# What was planted, a program in which it matters, what is said of it.
PLANTED = {
    "keeps_other_values": (168, "silent: "),
    "forgets_the_generator": (644, "silent: drawn is off by"),
    "does_not_recover": (168, "has waited for|hang|is told|stand at|cannot go on"),
    "never_comes": (168, "hang|has waited for"),
    "loads_other_values": (14, "silent: count is off by"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_found(planted, tmp_path):
    seed, said = PLANTED[planted]
    program = draft(seed)
    (verdict,) = play(
        [str(seed)],
        program.processes,
        program.devices,
        tmp_path,
        Patience(timeout=10, limit=30),
        planted=planted,
    )
    assert re.search(said, verdict.trouble), verdict.trouble + verdict.story


def test_drafts_are_of_every_kind():
    drafts = [draft(seed) for seed in range(500)]
    assert drafts == [draft(seed) for seed in range(500)]
    assert {fault.kind for d in drafts for fault in d.faults} == set(KINDS)
    assert {layer for d in drafts for layer in d.layers} == set(LAYERS)
    assert {(d.processes, d.devices) for d in drafts} == set(WORLDS)
    assert {d.feed for d in drafts} == {"direct", "loader", "parts"}
