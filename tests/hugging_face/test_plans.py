# SPDX-License-Identifier: Apache-2.0
"""Unmodified Hugging Face models give one device's loss and gradients under every plan and mesh."""

import pytest
from families import FAMILIES
from steps import PLANS, Place, assert_same, reference, train

MESHES = ((2,), (3,), (8,), (2, 2))


def check(name, place, **how):
    step = train(name, place, **how)
    assert_same(step, reference(name, **how), FAMILIES[name].relative)
    assert step.fallbacks == {}
    assert step.counters["implicit_syncs"] <= FAMILIES[name].reads
    return step


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_plan_on_four_devices_equals_plain_pytorch(name, plan):
    check(name, Place(plan))


@pytest.mark.parametrize("shape", MESHES, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_plan_on_a_mesh_equals_plain_pytorch(name, shape):
    for plan in PLANS:
        check(name, Place(plan, shape))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_that_four_devices_do_not_divide_equals_plain_pytorch(name):
    for plan in PLANS:
        check(name, Place(plan), rows=5)
