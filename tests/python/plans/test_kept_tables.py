# SPDX-License-Identifier: Apache-2.0
"""Tables of what was seen are bounded: other shapes for ever do not cost memory for ever."""

import resource
import warnings

import pytest
import spmdx
import torch

MOST = {"calls_kept": 1 << 14, "plans_kept": 1024, "reshard_plans_kept": 1 << 13}


@pytest.fixture
def mesh():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    return spmdx.Mesh(range(4), (4,), ("data",))


def resident():
    """Bytes of this process that are in memory now."""
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * resource.getpagesize()


def other_shapes(mesh, first, count):
    """A small step for each of ``count`` shapes that no other call has had."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of programs that are planned again and again
        for n in range(first, first + count):
            long, wide = 4 + n % 97, 3 + n // 97
            x = torch.zeros(1, long, wide, device="spmdx")
            spmdx.mark_sharding(x, mesh, (None, "data", None))
            y = x.tanh().view(-1, wide)[long // 2 :].narrow(1, n % 2, 1).sum(0)
            y.add_(1)
            spmdx.mark_step()
    spmdx.sync(wait=True)


def test_tables_stay_as_long_as_they_are(mesh):
    other_shapes(mesh, 0, 4000)
    before, bytes_before = spmdx.debug.counters(), resident()
    assert before["calls_kept"] > MOST["calls_kept"] / 2  # some were dropped, or soon will be
    other_shapes(mesh, 4000, 2500)
    after = spmdx.debug.counters()
    assert {name: after[name] for name in MOST if after[name] > MOST[name]} == {}
    assert resident() < bytes_before + (12 << 20)
