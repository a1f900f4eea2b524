# SPDX-License-Identifier: Apache-2.0
"""Processes that do not come through the making of a group: the others know, and end as usual."""

import re

import pytest
from launch import Running, run

PLAYER = "making_groups.py"
SETTINGS = {"SPMDX_TIMEOUT": 60, "SPMDX_COLLECTIVES": "native"}
DIED = r"CommError: .*process 1 \(pid \d+\) has died"
JOINS = (
    r"CommError: .*process 1 \(pid \d+\) could not be joined with process 0, 2: RuntimeError: too "
    r"many open files\. Expected connections between them"
)


@pytest.mark.parametrize("which", [1, 2, 3])  # of messages, of control, of a native collective
@pytest.mark.parametrize("how, said", [("killed", DIED), ("raises", JOINS)])
def test_the_others_say_why_and_end_as_usual(how, said, which):
    with Running(PLAYER, 3, 1, how, str(which), **SETTINGS) as running:
        ended = running.end(40)
    for rank in (0, 2):
        assert ended[rank].status == 1 and re.search(said, ended[rank].err), ended[rank]
    assert ended[1].status == (-9 if how == "killed" else 1)


def test_they_go_on_where_all_have_caught_it():
    for said in run(PLAYER, 3, 1, "recovers", "3", **SETTINGS):
        assert len(re.findall(JOINS, said)) == 3 and said.endswith("well\n"), said
