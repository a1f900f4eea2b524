# SPDX-License-Identifier: Apache-2.0
"""A sample of what rules offer, run and compared with the op run whole; `make rules` runs all."""

import pytest
import spmdx
from composites import least_work
from oracle import judge
from spmdx._rules.trials import MESHES
from walk import names

NAMES = names()[1::6]


@pytest.fixture(autouse=True)
def expansions_are_cut():
    """Moving is free; memory that nobody owns holds NaN."""
    before = spmdx._C.checks()
    spmdx._C.set_checks(poison=True)
    with least_work():
        yield
    spmdx._C.set_checks(**before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(NAMES)), ids=NAMES)
def test_all_that_rules_offer_is_right(at):
    tally = judge(NAMES[at], most=1, meshes=(MESHES[at % len(MESHES)],))
    assert not tally.wrong, "\n".join(tally.wrong[:5])
