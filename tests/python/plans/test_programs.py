# SPDX-License-Identifier: Apache-2.0
"""Whole annotated programs move, work and hold no more than was derived for them by hand."""

import sys
from pathlib import Path

import pytest
import spmdx

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "programs"))
from program_row import COMMON, exchanged, gathered, measure, reduced
from program_table import OPEN, ROWS


@pytest.fixture(autouse=True)
def known_links():
    """Plans are those of the default topology, which other tests may have left."""
    before = spmdx.get_topology()
    spmdx.set_topology("in-process")
    yield
    spmdx.set_topology(before)


@pytest.mark.parametrize("name", ROWS)
def test_a_program_stays_within_what_was_derived_for_it(name):
    found, row = measure(ROWS[name]), ROWS[name]
    assert not found.above(row), (
        f"{found.bytes:,} bytes of {row.bytes:,.0f}, work {found.work:.2f}, peak {found.peak:,}"
    )


@pytest.mark.parametrize("name", OPEN)
def test_a_program_on_record_exceeds_the_common_limits(name):
    """One that no longer does is to be struck from program_table.py."""
    assert measure(ROWS[name]).above(ROWS[name], COMMON)


def test_collectives_are_charged_as_in_reports():
    assert gathered(800, 8) == 700 and reduced(800, 8) == 1400 and exchanged(6400, 8) == 700


def test_there_are_programs_of_many_kinds():
    assert len(ROWS) >= 60 and len({row.why for row in ROWS.values()}) > 30
