# SPDX-License-Identifier: Apache-2.0
"""Processes that run different programs are told before data move, with a line of each."""

import re

import pytest
from launch import run

# What process 0 and process 1 are told that the first differing line of each is.
LINES = {
    "op": ("aten.mul.Tensor", "input i64[] number"),
    "shape": ("input f32[2, 8]", "input f32[2, 6]"),
    "dtype": ("input f32[2, 8]", "input f64[2, 8]"),
    "spec": ("!f32[2@data, 8]", "!f32[2, 8@data]"),
    "mesh": ("mesh(data=2)", "mesh(data=2) ids [1, 0]"),
    "values": ("with digest", "with digest"),
    "offset": ("aten.slice.Tensor(%0, 1, 2, 4, 1)", "aten.slice.Tensor(%0, 1, 4, 6, 1)"),
    "order": ("input f32[2, 8]", "input f32[2, 3]"),
    "extra": ("input f32[2, 8]", "input f32[2, 3]"),
    "missing": ("input f32[2, 3]", "input f32[2, 8]"),
}


@pytest.mark.parametrize("kind", LINES)
def test_a_step_that_differs_is_refused_on_every_process(kind):
    for line in run("differ.py", 2, 1, kind, SPMDX_TIMEOUT=120):
        assert line.startswith("0 bytes moved: differ.py:"), line
        for process, text in enumerate(LINES[kind]):
            said = re.search(
                rf"process {process} has `([^`]*)`( \((before )?differ.py:\d+\))", line
            )
            assert said and text in said[1], line
        assert "Expected the same" in line


def test_a_tensor_that_is_alive_in_one_process_alone_is_told_with_what_keeps_tensors():
    for line in run("differ.py", 2, 1, "alive", SPMDX_TIMEOUT=120):
        assert re.search(r"process 1 has `return %0 [^`]*`", line), line
        assert "Expected the same tensors to be alive in every process" in line, line


def test_all_of_three_processes_are_told():
    for line in run("differ.py", 3, 1, "op", SPMDX_TIMEOUT=120):
        assert line.startswith("0 bytes moved: ") and "differ.py:" in line, line


def test_a_step_more_than_the_others_names_who_has_ended():
    first, second = run("differ.py", 2, 1, "last", SPMDX_TIMEOUT=120)
    assert first == "all is well\n"
    assert re.search(r"process 0 \(pid \d+\) has ended after 2 steps: its program came to", second)
