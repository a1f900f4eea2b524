# SPDX-License-Identifier: Apache-2.0
"""A few of the settings that pipeline_product.py goes through, and how many there are."""

import pipeline_product
import pytest


@pytest.mark.parametrize("loop", ["clipped", "scaled"])
def test_settings_equal_one_device(loop):
    known = {}
    some = list(pipeline_product.settings(rf"llama, {loop}, m = 2, Mesh\(pipe=2(, data=2)?\)"))
    assert len(some) == 8
    assert [pipeline_product.check(setting, known) for setting in some] == [None] * 8
    assert len(known) == 2


def test_all_models_are_in_the_product():
    assert sum(1 for _ in pipeline_product.settings("")) > 1500
