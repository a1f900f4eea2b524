# SPDX-License-Identifier: Apache-2.0
"""The messages that docs/many_processes.md shows are those that process 0 prints."""

import pathlib
import re

import pytest
from hardware import ON_GPU, WRONG_INDICES
from launch import Running

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "many_processes.md"
MARKED = r"^<!-- said by: (\S+) (\w+) -->\n```text\n(.*?)\n```"
SHOWN = re.findall(MARKED, PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_messages_are_shown():
    assert len(SHOWN) == 5


@pytest.mark.parametrize("program, kind, message", SHOWN)
def test_the_message_is_what_is_said(program, kind, message):
    if ON_GPU and kind == "index":
        pytest.skip(WRONG_INDICES)
    with Running(program, 2, 1, kind, SPMDX_TIMEOUT=120) as running:
        said = running.end()[0].out
    (error,) = re.findall(r"^(?:CommError|0 bytes moved): (.*)$", said, re.MULTILINE)
    assert re.sub(r"(pid|digest) \d+", r"\1 N", error) == message
