# SPDX-License-Identifier: Apache-2.0
"""The default dtype may change between the line of an op and the step that computes it."""

import pytest
import spmdx
import torch
from hardware import assert_same
from messages import cases, eight_devices

MAKES_REALS = [
    ("div", lambda x: x / 2),
    ("div_tensor", lambda x: x / (x + 1)),
    ("mul", lambda x: x * 0.5),
    ("sqrt", lambda x: x.sqrt()),
    ("sigmoid", lambda x: (x > 1).sigmoid()),
    ("where", lambda x: torch.where(x > 1, 1.5, 0.5)),
    ("chain", lambda x: (x.exp() - 1) / 3 + x),
]


@pytest.fixture(scope="module", autouse=True)
def devices_of_all():
    eight_devices()


@pytest.fixture
def default_dtype():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("then", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("when", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("work", cases(MAKES_REALS))
def test_reals_have_the_default_dtype_of_the_line(work, when, then, devices, default_dtype):
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    host = torch.arange(24).view(8, 3)
    x = spmdx.mark_sharding(host.to("spmdx"), mesh, ("data", None))
    torch.set_default_dtype(when)
    y, want = work(x), work(host)
    torch.set_default_dtype(then)
    assert y.dtype == want.dtype
    assert_same(y.cpu(), want)
