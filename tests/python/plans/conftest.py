# SPDX-License-Identifier: Apache-2.0
"""What tests of plans share."""

import pytest
import spmdx


@pytest.fixture
def forgotten_plans():
    """No plan is known, counters are at 0, and memory that no shard owns holds NaN."""
    spmdx._C.set_checks(poison=True)
    spmdx.sync(wait=True)
    spmdx._C.clear_cache()
    spmdx.debug.reset_counters()
    yield
    spmdx._C.set_checks()
