# SPDX-License-Identifier: Apache-2.0
"""Tests of this folder have eight devices."""

import pytest
from messages import eight_devices


@pytest.fixture(autouse=True)
def devices():
    eight_devices()
