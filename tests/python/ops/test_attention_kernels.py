# SPDX-License-Identifier: Apache-2.0
"""``torch.nn.attention.sdpa_kernel`` means on the device what it means on the CPU."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal
from torch.nn.attention import SDPBackend, sdpa_kernel

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


def twice(device, mesh=None):
    """Attention and the gradient of its gradient."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 4, 4, 5, 8, dtype=torch.float64, generator=generator)
    q, k, v = q.to(device), k.to(device), v.to(device)
    if mesh:
        spmdx.mark_sharding(q, mesh, ("x", None, None, None))
        spmdx.mark_sharding(k, mesh, (None, "x", None, None))
    q.requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    (first,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), q)
    return y, first, second


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_the_formula_is_taken_where_it_is_asked_for_and_has_second_derivatives(devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    with sdpa_kernel(SDPBackend.MATH):
        for got, want in zip(twice("spmdx", mesh), twice("cpu"), strict=True):
            assert_equal(got.detach().cpu(), want.detach(), f"on {devices}")


@pytest.mark.parametrize("device", ["cpu", "spmdx"])
def test_attention_that_no_allowed_kernel_computes_is_refused(device):
    q = torch.randn(2, 4, 5, 8).to(device)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(q, q, q)
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
