# SPDX-License-Identifier: Apache-2.0
"""What the memory of devices of several kinds has to hold."""

import pytest
import spmdx
import torch
from spmdx.errors import ShardingError


def mesh_of(kinds):
    return spmdx.Mesh(range(8), (kinds, 8 // kinds), ("kind", "data"))


@pytest.mark.parametrize("kinds", [2, 4])
def test_a_weight_that_many_ops_read_takes_its_memory_once(kinds):
    little = spmdx.Hardware("little", {"f32": 1e9}, 1e9, memory_bytes=1200 << 10)
    names = [f"cpu@{name}" for name in "abcd"[:kinds]]
    spmdx.runtime.set_devices(
        [name for name in names for _ in range(8 // kinds)], hardware=dict.fromkeys(names, little)
    )
    mesh = mesh_of(kinds)
    spmdx.auto.place(mesh)
    torch.manual_seed(0)
    start, x = torch.randn(2, 256, 256) / 16, torch.randn(4, 256)
    weight = torch.nn.Parameter(start.to("spmdx"))
    spmdx.mark_sharding(weight, mesh, (None, None, None))
    state = x.to("spmdx")
    for step in range(40):
        state = (state @ weight[step % 2]).tanh()
    expected = x
    for step in range(40):
        expected = (expected @ start[step % 2]).tanh()
    torch.testing.assert_close(state.detach().cpu(), expected)
    spmdx.auto.place(None)
    del weight, state


def test_memory_that_is_too_small():
    little = spmdx.Hardware("little", {"f32": 1e9}, 1e9, memory_bytes=1 << 20)
    spmdx.runtime.set_devices(
        ["cpu@a"] * 4 + ["cpu@b"] * 4, hardware=dict.fromkeys(("cpu@a", "cpu@b"), little)
    )
    mesh = mesh_of(2)
    spmdx.auto.place(mesh)
    x = spmdx.mark_sharding(torch.ones(1024, 1024).to("spmdx"), mesh, (None, None))
    y = x @ x
    with pytest.raises(ShardingError, match=r"lack \d+ bytes .* of 1048576 that each has"):
        spmdx.mark_step()
    spmdx.auto.place(None)
    assert y.sum().item() == 1024**3
