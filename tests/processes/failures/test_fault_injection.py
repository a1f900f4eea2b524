# SPDX-License-Identifier: Apache-2.0
"""A few of the cases that `make chaos` plays by the hundred."""

import pytest
from fault_injection_cases import POINTS, Case, Patience, judge

KILLED = [Case(point, "kill", 2 + 2 * (at % 3 == 0), 0) for at, point in enumerate(POINTS)]
NATIVE = [
    Case("first collective", "kill", 3, 0, "native"),
    Case("collective", "kill", 4, 1, "native"),
    Case("collective", "stop", 2, 1, "native"),
]
STOPPED = [Case(point, "stop", 2, 1) for point in ("rendezvous", "collective")]
PATIENCE = Patience(timeout=20, limit=150)  # on a machine that does other things too


@pytest.mark.parametrize("case", KILLED + STOPPED + NATIVE, ids=str)
def test_nobody_waits_for_ever_and_nothing_is_lost(case):
    verdict = judge(case, PATIENCE)
    assert not verdict.trouble, verdict.trouble
    assert verdict.struck
