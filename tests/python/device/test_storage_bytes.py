# SPDX-License-Identifier: Apache-2.0
"""Bytes of storages are copied and filled as on the CPU, and refused as there."""

import pytest
import spmdx
import torch
from messages import eight_devices

WRONG = {
    "one byte": lambda s, d: s.copy_(
        torch.full((1,), 7, dtype=torch.uint8, device=d).untyped_storage()
    ),
    "half": lambda s, d: s.copy_(torch.zeros(4, device=d).untyped_storage()),
    "double": lambda s, d: s.copy_(torch.zeros(16, device=d).untyped_storage()),
    "none": lambda s, d: s.copy_(torch.zeros(0, device=d).untyped_storage()),
    "nothing": lambda s, d: s.copy_(),
    "source": lambda s, d: s.copy_(source=torch.zeros(8, device=d).untyped_storage()),
    "fill": lambda s, d: s.fill_(),
    "fill_named": lambda s, d: s.fill_(value=1),
    "resize": lambda s, d: s.resize_(size=8),
}
RIGHT = {
    "copy": lambda s, d: s.copy_(torch.ones(8, device=d).untyped_storage()),
    "named": lambda s, d: s.copy_(src=torch.ones(8, device=d).untyped_storage()),
    "later": lambda s, d: s.copy_(torch.ones(8, device=d).untyped_storage(), True),
    "from the host": lambda s, d: s.copy_(torch.ones(8).untyped_storage()),
    "fill": lambda s, d: s.fill_(3),
    "wrapped": lambda s, d: s.fill_(300),
}


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def marked(place, devices):
    x = torch.arange(8.0).to(place)
    if place == "spmdx" and devices > 1:
        spmdx.mark_sharding(x, spmdx.Mesh(range(devices), (devices,), ("data",)), ("data",))
    return x


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("name", RIGHT)
def test_bytes_are_those_of_the_cpu(name, count):
    ours, plain = marked("spmdx", count), marked("cpu", 1)
    RIGHT[name](ours.untyped_storage(), "spmdx")
    RIGHT[name](plain.untyped_storage(), "cpu")
    assert ours.cpu().equal(plain)


@pytest.mark.parametrize("place", ["cpu", "spmdx"])
@pytest.mark.parametrize("name", WRONG)
def test_what_the_cpu_refuses_is_refused_at_once_and_changes_nothing(name, place):
    x = marked(place, 3)
    with pytest.raises((RuntimeError, TypeError)) as said:
        WRONG[name](x.untyped_storage(), place)
    assert x.cpu().equal(torch.arange(8.0))
    if name in ("one byte", "half", "double", "none"):
        assert "size does not match, self was 32 bytes but src was" in str(said.value)
