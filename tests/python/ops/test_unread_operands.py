# SPDX-License-Identifier: Apache-2.0
"""What an op takes but does not read costs nothing: the token weights of a loss that is a sum."""

import pytest
import spmdx
import torch
import torch.nn.functional as F

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("ignore", [-100, 1])
@pytest.mark.parametrize("reduction", ["sum", "none", "mean"])
def test_only_a_mean_sums_the_weight_of_all_tokens(devices, ignore, reduction):
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    torch.manual_seed(0)
    logits, target, weight = torch.randn(13, 5), torch.randint(5, (13,)), torch.rand(5)

    def gradient(x, y, w):
        x.requires_grad_()
        F.cross_entropy(x, y, weight=w, reduction=reduction, ignore_index=ignore).sum().backward()
        return x.grad

    want = gradient(logits.clone(), target, weight)
    x, y, w = (t.to("spmdx") for t in (logits, target, weight))
    spmdx.mark_sharding(x, mesh, ("data", None))
    spmdx.mark_sharding(y, mesh, ("data",))
    spmdx.mark_step()
    got = gradient(x, y, w)
    spmdx.mark_step()
    kinds = [c.kind for c in spmdx.explain().collectives]
    assert kinds == (["all_reduce"] if reduction == "mean" else [])
    torch.testing.assert_close(got.cpu(), want, rtol=1e-6, atol=1e-6)
