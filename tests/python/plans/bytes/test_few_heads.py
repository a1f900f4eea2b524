# SPDX-License-Identifier: Apache-2.0
"""Attention over a cut sequence with fewer heads than devices: parts of one axis cut both."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal
from spmdx.topology import Level

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


# Links so slow that small programs are planned as large ones.
SLOW = spmdx.Topology("slow", (Level(0, 0, 0, 10**7),))

# Heads and devices where parts of the axis move least. Of 6 heads on 8 devices, uneven parts do.
IN_PARTS = {(2, 4), (6, 4), (2, 8), (4, 8)}


@pytest.fixture
def slow_links():
    before = spmdx.get_topology()
    spmdx.set_topology(SLOW)
    yield
    spmdx.set_topology(before)


def line(devices):
    return spmdx.Mesh(range(devices), (devices,), ("x",))


def attended(tensors, mesh=None, **how):
    """The result and the gradients of q, k, v, each [batch, position, head, size]."""
    leaves = [t.to("spmdx") if mesh else t.clone() for t in tensors]
    if mesh:
        leaves = [spmdx.mark_sharding(t, mesh, (None, "x", None, None)) for t in leaves]
    for t in leaves:
        t.requires_grad_()
    q, k, v = (t.transpose(1, 2) for t in leaves)
    y = F.scaled_dot_product_attention(q, k, v, **how).transpose(1, 2)
    if mesh:
        y = spmdx.mark_sharding(y, mesh, (None, "x", None, None))
    return [y, *torch.autograd.grad(y.square().sum(), leaves)]


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("length", [48, 101])
@pytest.mark.parametrize("heads", [2, 3, 4, 6])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_results_and_gradients_are_those_of_one_device(slow_links, devices, length, heads, causal):
    generator = torch.Generator().manual_seed(0)
    tensors = torch.randn(3, 2, length, heads, 8, dtype=torch.float64, generator=generator)
    found = attended(tensors, line(devices), is_causal=causal)
    spmdx.mark_step()
    in_parts = [v for v in spmdx.explain().values if v.sharding and "x:(" in v.sharding]
    assert bool(in_parts) == ((heads, devices) in IN_PARTS)
    for got, want in zip(found, attended(tensors, is_causal=causal), strict=True):
        assert_equal(got.detach().cpu(), want.detach(), f"{heads} heads on {devices}")


@pytest.mark.parametrize(("heads", "devices"), [(2, 4), (2, 8), (4, 8), (6, 4), (6, 8)])
def test_heads_take_a_part_of_the_axis_and_queries_the_rest(heads, devices):
    length, size = 8192, 64
    with spmdx.plan_only():
        tensors = [torch.empty(1, length, heads, size) for _ in range(3)]
        attended(tensors, line(devices))
        spmdx.mark_step()
        report = spmdx.explain()
    part = length * heads * size * 4 / devices  # of a tensor, on one device
    cut = 2  # the largest part of the axis that divides the heads
    while heads % (2 * cut) == 0:
        cut *= 2
    rest = devices // cut
    # Eight tensors are exchanged for heads; keys, values and their gradients move among the rest.
    exchanged, moved = 8 * part * (cut - 1) / cut, 4 * part * (rest - 1)
    assert report.wire_bytes <= 1.05 * (exchanged + moved)
