# SPDX-License-Identifier: Apache-2.0
"""Kernels that walk operands by address alone get the elements that belong together."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from cuts import line

X = torch.sin(torch.arange(20.0)).reshape(5, 4)
W = torch.arange(24.0).reshape(6, 4) / 10
KINDS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]


def by_einsum(p):
    return torch.einsum("ij,kj->ik", X.to(p.device), p).square().sum()


def by_linear(p):
    return F.linear(X.to(p.device), p).square().sum()


def uploaded(device):
    return W.clone().to(device)


def copied(device):
    return torch.zeros(6, 4).to(device).copy_(W.t().contiguous().t())


def turned(device):
    return W.t().contiguous().to(device).t().contiguous()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    ("make", "loss"), [(uploaded, by_einsum), (copied, by_linear), (turned, by_linear)]
)
def test_fused_steps_equal_plain_ones_however_shards_lie(kind, make, loss):
    def trained(device, devices=0, spec=None, **how):
        p = torch.nn.Parameter(make(device))
        if devices:
            spmdx.mark_sharding(p, line(devices), spec)
        optimizer = kind([p], 0.1, **how)
        for _ in range(3):
            optimizer.zero_grad()
            loss(p).backward()
            optimizer.step()
        return p.detach().cpu()

    right = trained("cpu", foreach=False)
    for devices in (0, 2, 3, 4, 8):
        for spec in (("x", None), (None, "x")) if devices else (None,):
            found = trained("spmdx", devices, spec, fused=True)
            torch.testing.assert_close(found, right, msg=f"on {devices}, {spec}")


@pytest.mark.parametrize("devices", [0, 2, 3, 4, 8])
def test_weight_norm_takes_weights_that_lie_in_columns(devices):
    def trained(device):
        torch.manual_seed(0)
        module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 6)).to(device)
        weight = module.parametrizations.weight.original1
        if devices and device == "spmdx":
            spmdx.mark_sharding(weight, line(devices), ("x", None))
        with torch.no_grad():
            weight.copy_(W.t().contiguous().to(device).t())
        module(X.to(device)).square().sum().backward()
        return [p.grad.cpu() for p in module.parameters()]

    for got, want in zip(trained("spmdx"), trained("cpu"), strict=True):
        torch.testing.assert_close(got, want)
