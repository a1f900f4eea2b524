# SPDX-License-Identifier: Apache-2.0
"""Dtypes and sizes of results are those of the kernels: norms in 16 bits, on one device and cut."""

import pytest
import spmdx
import torch
from composites import least_work

pytestmark = pytest.mark.on_the_cpu("kernels of GPUs take and give other dtypes")

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

SHORT = (torch.bfloat16, torch.float16)
MESHES = {n: ((n,), ("x",)) for n in (2, 3, 4, 8)} | {"2x2": ((2, 2), ("x", "y"))}
aten = torch.ops.aten
# Of x: [6, 4, 5], the weight and bias of its channels or of its last dim, and their statistics.
NORMS = {
    "layer norm": lambda x, w, b, m, v: aten.native_layer_norm(x, [5], w, b, 1e-5),
    "group norm": lambda x, w, b, m, v: aten.native_group_norm(x, w, b, 6, 4, 5, 2, 1e-5),
    "batch norm in training": lambda x, w, b, m, v: aten.native_batch_norm(
        x, w, b, m, v, True, 0.1, 1e-5
    ),
    "batch norm without statistics": lambda x, w, b, m, v: aten.native_batch_norm(
        x, w, b, None, None, True, 0.1, 1e-5
    ),
    "batch norm in evaluation": lambda x, w, b, m, v: aten.native_batch_norm(
        x, w, b, m, v, False, 0.1, 1e-5
    ),
}


def mesh_of(key):
    shape, names = MESHES[key]
    return spmdx.Mesh(range(torch.Size(shape).numel()), shape, names)


def operands(name, dtype, parameters):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, 5, generator=generator).to(dtype)
    size = 5 if name == "layer norm" else 4
    w, b = (torch.rand(size, generator=generator) + 0.5 for _ in range(2))
    kind = {"the same": dtype, "f32": torch.float32, "none": None}[parameters]
    m, v = torch.zeros(size, dtype=kind or dtype), torch.ones(size, dtype=kind or dtype)
    return [x, *([None, None] if kind is None else [w.to(kind), b.to(kind)]), m, v]


def run(function, tensors, device, place=lambda t: t):
    """Results, and gradients of x and the parameters."""
    moved = [None if t is None else place(t.clone().to(device)) for t in tensors]
    leaves = [t.requires_grad_() for t in moved[:3] if t is not None]
    results = function(*moved)
    weights = torch.linspace(0.5, 1.5, results[0].numel()).reshape(results[0].shape)
    (results[0] * weights.to(results[0].dtype).to(device)).sum().backward()
    return [t.detach().cpu() for t in (*results, *(t.grad for t in leaves))]


def assert_near(found, wanted, roundings):
    """Each of the same dtype and shape, and no further away than some roundings of the largest."""
    for got, want in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.numel():
            close = roundings * torch.finfo(SHORT[0]).eps * want.double().abs().max()
            assert (got.double() - want.double()).abs().max() <= close


@pytest.mark.parametrize("parameters", ["the same", "f32", "none"])
@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_gives_what_the_kernel_gives(name, dtype, parameters):
    tensors = operands(name, dtype, parameters)
    want = run(NORMS[name], tensors, "cpu")
    one = run(NORMS[name], tensors, "spmdx")
    assert all(torch.equal(a, b) for a, b in zip(one, want, strict=True))
    assert [t.dtype for t in one] == [t.dtype for t in want]
    for key in MESHES:
        mesh = mesh_of(key)
        for dim in range(3):

            def place(t, mesh=mesh, dim=dim):
                spec = ["x" if d == dim else None for d in range(t.dim())]
                return spmdx.mark_sharding(t, mesh, tuple(spec)) if t.dim() == 3 else t

            with least_work():
                assert_near(run(NORMS[name], tensors, "spmdx", place), want, 3)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_the_gradient_of_no_rows_has_the_dtype_of_the_weight(dtype):
    def gradients(device):
        x = torch.zeros(0, 5, dtype=dtype).to(device)
        w, b = (torch.ones(5).to(device).requires_grad_() for _ in range(2))
        torch.layer_norm(x, [5], w, b).sum().backward()
        return [t.grad.cpu() for t in (w, b)]

    for got, want in zip(gradients("spmdx"), gradients("cpu"), strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_an_encoder_in_16_bits_rounds_no_more_than_eager_does(dtype, devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))

    def step(device, dtype):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).to(SHORT[0])
        x = torch.randn(5, 3, 8).to(SHORT[0]).to(dtype).to(device)
        layer = layer.to(dtype).to(device)
        if device != "cpu":
            spmdx.mark_sharding(x, mesh, ("x", None, None))
        out = layer(x)
        (out * out.detach().cos()).sum().backward()
        return [t.detach().cpu() for t in (out, *(p.grad for p in layer.parameters()))]

    got, eager, exact = step("spmdx", dtype), step("cpu", dtype), step("cpu", torch.float64)
    for mine, its, true in zip(got, eager, exact, strict=True):
        allowed = 2 * (its.double() - true).norm() + torch.finfo(dtype).eps * true.norm()
        assert mine.dtype == its.dtype == dtype
        assert (mine.double() - true).norm() <= allowed


LOSSES = {
    "mse_loss": torch.nn.functional.mse_loss,
    "smooth_l1_loss": torch.nn.functional.smooth_l1_loss,
    "huber_loss": torch.nn.functional.huber_loss,
    "soft_margin_loss": torch.nn.functional.soft_margin_loss,
    "l1_loss": torch.nn.functional.l1_loss,
}
FORWARD = ("huber_loss", "soft_margin_loss")  # PyTorch refuses gradients of two dtypes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["none", "mean", "sum"])
@pytest.mark.parametrize("types", [(torch.bfloat16, torch.float32), (torch.float64, SHORT[1])])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_two_dtypes_gives_what_the_kernel_gives(name, types, how):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(6, 5, generator=generator).to(dtype) for dtype in types)

    def step(device, place=lambda t: t):
        a, b = (place(t.clone().to(device)) for t in (x, y))
        for t in () if name in FORWARD else (a, b):
            t.requires_grad_()
        loss = LOSSES[name](a, b, reduction=how)
        if name in FORWARD:
            return [loss.detach().cpu()]
        loss.sum().backward()
        return [t.detach().cpu() for t in (loss, a.grad, b.grad)]

    want = step("cpu")
    assert_near(step("spmdx"), want, 2)
    for key in MESHES:
        for spec in (("x", None), (None, "x")):
            mesh = mesh_of(key)
            with least_work():
                got = step("spmdx", lambda t, mesh=mesh, s=spec: spmdx.mark_sharding(t, mesh, s))
            assert_near(got, want, 2)
