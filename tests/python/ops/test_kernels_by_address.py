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


def square(*batch):
    numbers = torch.sin(torch.arange(float(25 * max(1, *batch, 1)))).view(*batch, 5, 5)
    return numbers + 3 * torch.eye(5)


DETERMINANTS = {
    "det": torch.linalg.det,
    "slogdet": lambda m: torch.stack(torch.linalg.slogdet(m)).sum(0),
    "logdet": lambda m: torch.logdet(m @ m.mT),
}
LIES = {
    "as given": lambda m: m,
    "turned": lambda m: m.mT,
    "a slice": lambda m: torch.cat([m, m], -1)[..., :5],
    "flipped and turned": lambda m: m.flip(-1).mT,
    "one of a stack": lambda m: torch.stack([m, m], -1)[..., 0],
    "turned, then dense": lambda m: m.mT.contiguous(),
}


@pytest.mark.parametrize("name", DETERMINANTS)
@pytest.mark.parametrize("lies", LIES)
def test_determinants_of_matrices_that_lie_in_any_way(name, lies):
    """The formula of the gradient asks how the matrix lay, of which shards know nothing."""

    def trained(m):
        m.requires_grad_()
        DETERMINANTS[name](LIES[lies](m)).sum().backward()
        return m.grad.cpu()

    for m in (square(), square(4)):
        right = trained(m.clone())
        for devices in (0, 2, 3, 4, 8):
            for dim in range(m.dim()) if devices else (0,):
                ours = m.clone().to("spmdx")
                if devices:
                    spec = tuple("x" if d == dim else None for d in range(m.dim()))
                    spmdx.mark_sharding(ours, line(devices), spec)
                torch.testing.assert_close(
                    trained(ours), right, rtol=1e-3, atol=1e-4 * right.abs().max().item()
                )


POOLS = {
    "fractional_max_pool2d": (2, lambda x, r: F.fractional_max_pool2d(x, 2, 3, _random_samples=r)),
    "fractional_max_pool3d": (3, lambda x, r: F.fractional_max_pool3d(x, 2, 3, _random_samples=r)),
    "adaptive_max_pool2d": (2, lambda x, r: F.adaptive_max_pool2d(x, (2, 3))),
    "adaptive_max_pool3d": (3, lambda x, r: F.adaptive_max_pool3d(x, (2, 3, 2))),
    "max_pool3d": (3, lambda x, r: F.max_pool3d(x, 2)),
}


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("name", POOLS)
def test_pools_whose_gradient_is_cut_after_a_whole_forward(name, devices):
    dims, pool = POOLS[name]
    x = torch.sin(torch.arange(2 * 4 * 6.0**dims)).view(2, 4, *[6] * dims)
    draws = torch.full((2, 4, dims), 0.3)
    plain = x.clone().requires_grad_()
    upstream = torch.cos(torch.arange(pool(x, draws).numel()).float()).view_as(pool(x, draws))
    pool(plain, draws).backward(upstream)
    for marked in ("upstream", "gradient", "x"):
        ours, there = x.to("spmdx").requires_grad_(), upstream.to("spmdx")
        y = pool(ours, draws.to("spmdx"))
        spmdx.mark_step()
        spec = (None, "x", *[None] * dims)
        if marked == "upstream":
            spmdx.mark_sharding(there, line(devices), spec)
        if marked == "x":
            spmdx.mark_sharding(ours, line(devices), spec)
        y.backward(there)
        if marked == "gradient":
            spmdx.mark_sharding(ours.grad, line(devices), spec)
        torch.testing.assert_close(ours.grad.cpu(), plain.grad)
