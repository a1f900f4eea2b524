# SPDX-License-Identifier: Apache-2.0
"""How properties are tried with hypothesis: on the same examples in every run."""

from hypothesis import HealthCheck, settings


def examples(count):
    """So many; nothing is kept of them, and no time is measured."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
