# SPDX-License-Identifier: Apache-2.0
"""Forward-mode derivatives and their compositions, on the device and on meshes."""

import pytest
import spmdx
import torch
import torch.autograd.forward_ad as fwad
import torch.nn.functional as F
from models import assert_equal
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils import _pytree as pytree

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


TABLE, TARGET = drawn(4, 3, seed=1), torch.tensor([0, 2, 1, 1, 0, 2])
FUNCTIONS = {
    "cube": lambda x: (x**3).sum(),
    "product of sines": lambda x: (x.sin() * x.flip(0).cos()).sum(),
    "layer": lambda x: (x @ TABLE.to(x.device)).tanh().square().sum(),
    "softmax": lambda x: (x.softmax(-1) * x).sum(),
    "norm": lambda x: (F.layer_norm(x, x.shape[-1:]) ** 3).sum(),
    "loss": lambda x: F.cross_entropy(x @ TABLE.to(x.device), TARGET.to(x.device)),
    "written": lambda x: (x.clone().mul_(x).index_add(0, TARGET.to(x.device) % 3, x) ** 2).sum(),
    "selected": lambda x: (x[:2] * x[2:4]).sum() + x.max(),
    "joined": lambda x: torch.cat([x, x * x, x.detach()]).cumsum(0).square().mean(),
    "where": lambda x: torch.where(x > 0, x**2, -x).logsumexp(0).sum(),
}


def dual(f, x):
    with fwad.dual_level():
        made = f(fwad.make_dual(x, torch.ones_like(x)))
        primal, tangent = fwad.unpack_dual(made)
        return primal, torch.zeros_like(primal) if tangent is None else tangent


def jvp_of_grad(f, x):
    return jvp(grad(f), (x,), (torch.ones_like(x),))


TRANSFORMS = {
    "hessian": lambda f, x: hessian(f)(x),
    "jvp": lambda f, x: jvp(f, (x,), (x.cos(),)),
    "jvp of grad": jvp_of_grad,
    "grad of jvp": lambda f, x: grad(lambda y: jvp(f, (y,), (torch.ones_like(y),))[1])(x),
    "jacfwd": lambda f, x: jacfwd(grad(f))(x),
    "jacrev": lambda f, x: jacrev(f)(x),
    "vjp of jvp": lambda f, x: vjp(lambda y: jvp(f, (y,), (y,))[1], x)[0],
    "vmap of jvp of grad": lambda f, x: vmap(lambda y: jvp_of_grad(f, y))(torch.stack([x, x * 2])),
    "vmap of hessian": lambda f, x: vmap(hessian(f))(torch.stack([x, -x])),
    "dual numbers": dual,
    "hessian of autograd": lambda f, x: torch.autograd.functional.hessian(f, x),
    "forward jacobian of autograd": lambda f, x: torch.autograd.functional.jacobian(
        f, x, strategy="forward-mode", vectorize=True
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_equal_plain_pytorch(name, transform):
    x, f, derive = drawn(6, 4), FUNCTIONS[name], TRANSFORMS[transform]
    want = pytree.tree_leaves(derive(f, x))
    for devices in (None, 2, 3, 4, 8):
        for cut in (0, 1) if devices else (0,):
            y = x.to("spmdx")
            if devices:
                spec = ("x", None) if cut == 0 else (None, "x")
                spmdx.mark_sharding(y, spmdx.Mesh(range(devices), (devices,), ("x",)), spec)
            got = pytree.tree_leaves(derive(f, y))
            for a, b in zip(got, want, strict=True):
                assert_equal(a.detach().cpu(), b.detach(), f"on {devices}, dim {cut}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", [1, slice(1, 4), (slice(None), 2), (slice(1, 5, 2), slice(1, 3))])
@pytest.mark.parametrize("transform", ["hessian", "jvp", "jvp of grad", "dual numbers"])
def test_derivatives_at_a_part_of_a_tensor_equal_plain_pytorch(part, transform):
    x, derive = drawn(6, 4), TRANSFORMS[transform]
    for f in (lambda v: v.prod() + v.sum(), lambda v: v.view_as(v).narrow(0, 1, 1).pow(3).sum()):
        want = pytree.tree_leaves(derive(f, x[part]))
        for devices in (2, 3, 4, 8):
            y = x.to("spmdx")
            spmdx.mark_sharding(y, spmdx.Mesh(range(devices), (devices,), ("x",)), ("x", None))
            got = pytree.tree_leaves(derive(f, y[part]))
            for a, b in zip(got, want, strict=True):
                assert_equal(a.detach().cpu(), b.detach(), f"on {devices}")
