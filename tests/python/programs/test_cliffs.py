# SPDX-License-Identifier: Apache-2.0
"""The programs that benchmarks/cliffs.py times give eager's values, whole and on four devices."""

import dataclasses
import sys
from pathlib import Path

import pytest
import spmdx
import torch
from hardware import ON_GPU

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "cliffs"))
import cliffs_figures
from cliff_row import Found, Goal, Place, built, here, measure
from cliff_table import FIGURES, OPEN, ROWS

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
QUICK = [name for name, row in ROWS.items() if row.quick]
# Sums over thousands of elements, and bfloat16: a GPU adds in another order.
BOUNDS = {"rtol": 2e-2, "atol": 1e-2} if ON_GPU else {"rtol": 1e-3, "atol": 1e-4}


def tensors(kept):
    """All tensors within what a step returned, on the host."""
    if isinstance(kept, torch.Tensor):
        return [kept.detach().cpu()]
    return [tensor for each in kept or () for tensor in tensors(each)]


def second_step(row, place):
    """What the second step of a row returns there."""
    step = built(row, place)
    step()
    place.end()
    kept = step()
    place.end()
    return tensors(kept)


@pytest.mark.parametrize("name", QUICK)
def test_a_program_gives_the_values_of_eager(name):
    """Where the host draws other numbers, or rounds elsewhere, those of one device."""
    row = ROWS[name]
    whole, cut = (second_step(row, here(devices)) for devices in (1, 4))
    expected = second_step(row, Place("cpu")) if row.compared else whole
    for given in (whole, cut):
        for ours, theirs in zip(given, expected, strict=True):
            torch.testing.assert_close(ours, theirs, **BOUNDS, equal_nan=True)


def test_there_are_programs_of_many_kinds():
    assert len(ROWS) + len(FIGURES) >= 150
    assert len(QUICK) > 0.8 * len(ROWS)
    assert sum(row.compared for row in ROWS.values()) > 0.8 * len(ROWS)


def test_reasons_are_of_rows():
    assert set(OPEN) <= {*ROWS, *FIGURES} and all(OPEN.values())


def test_a_step_is_timed_beside_eager_and_counted():
    found = measure(ROWS["many small ops"], 1)
    assert len(found.eager) == len(found.ours) >= 1 and min(found.eager + found.ours) > 0
    assert found.counted == {"syncs": 0, "plans": 0, "ops": 1000}


def test_a_goal_is_judged_by_paired_rounds():
    found = Found([1.0, 1.0, 4.0], [2.1, 2.3, 8.4], {})
    assert found.ratio == 2.1 and not Goal().met(found)
    assert Goal(plus=0.2).met(found) and Goal(factor=3.0).met(found)
    assert Goal().met(Found([1.0, 1.0, 1.0], [1.5, 9.0, 9.0], {}))  # two slow moments


def test_a_figure_counts_plans():
    figure = dataclasses.replace(FIGURES["plans of 100 offsets"], most=3)
    assert 1 <= figure.take() <= 100 and cliffs_figures.resident() > 10


def test_the_page_lists_what_is_above_its_goal_and_why():
    page = (Path(__file__).parents[3] / "docs" / "performance.md").read_text()
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert {cell[0]: cell[-1] for cell in cells if cell[0] in {*ROWS, *FIGURES}} == OPEN
