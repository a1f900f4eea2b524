# SPDX-License-Identifier: Apache-2.0
"""The examples compute what plain PyTorch computes on one device, in double precision."""

import pytest
import spmdx
from example_cases import CASES, plainly, run

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("name", CASES)
def test_every_mesh_gives_what_one_device_gives(name):
    want = plainly(name)
    for shape in CASES[name].shapes:
        got = run(name, shape)
        assert len(got) == len(want)
        for index, (ours, plain) in enumerate(zip(got, want, strict=True)):
            assert ours.shape == plain.shape
            difference = (ours - plain).abs().max()
            assert difference <= 1e-9 * plain.abs().max(), (shape, index, difference)
    assert spmdx.debug.fallbacks() == {}
