# SPDX-License-Identifier: Apache-2.0
"""8-bit floats and wide unsigned numbers are not added, so no plan has parts of sums of them."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from composites import fewest_bytes, least_work

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
MOVED = {
    "index_select": lambda x, at: x.index_select(0, at),
    "index": lambda x, at: x[at],
    "embedding": lambda x, at: F.embedding(at, x),
    "slice_scatter": lambda x, at: x.slice_scatter(x[:20], 0, 30, 50),
    "cat": lambda x, at: torch.cat([x, x[10:40]]),
    "rolled": lambda x, at: x.roll(7, 0),
    "flipped": lambda x, at: x.flip(0),
}
# PyTorch has no such kernel for unsigned numbers.
WRITTEN = {
    "index_put": lambda x, at: x.index_put((at,), x[: len(at)]),
    "index_put that adds": lambda x, at: x.index_put((at,), x[: len(at)], accumulate=True),
}
CASES = [(name, dtype) for name in MOVED for dtype in EIGHT_BITS + UNSIGNED]
CASES += [(name, dtype) for name in WRITTEN for dtype in EIGHT_BITS]


@pytest.mark.parametrize("cost", [fewest_bytes, least_work])
@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_a_product_is_summed_before_it_becomes_eight_bits(dtype, devices, cost):
    """Its parts are larger than it is, and round to other numbers."""
    a, b = torch.ones(8, 12), torch.arange(12.0 * 6).reshape(12, 6).sub(36)
    b[:6] *= 8
    b[6:] -= b[:6]
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    x = spmdx.mark_sharding(a.to("spmdx"), mesh, (None, "x"))
    y = spmdx.mark_sharding(b.to("spmdx"), mesh, ("x", None))
    with cost():
        found = (x @ y).to(dtype).cpu()
    assert torch.equal(found.float(), (a @ b).to(dtype).float())


@pytest.mark.parametrize("cost", [fewest_bytes, least_work])
@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_rows_move(name, dtype, devices, cost):
    function = (MOVED | WRITTEN)[name]
    x = torch.arange(64 * 32).remainder(61).reshape(64, 32).to(torch.float32).to(dtype)
    at = torch.tensor([5, 0, 63, 7, 2, 31, 32, 40])
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    cut = spmdx.mark_sharding(x.to("spmdx"), mesh, ("x", None))
    with cost():
        found = function(cut, at.to("spmdx")).cpu()
    assert torch.equal(found.double(), function(x, at).double())
