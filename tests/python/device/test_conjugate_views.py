# SPDX-License-Identifier: Apache-2.0
"""Tensors that show the conjugate or the negative of memory say so, and are as in eager."""

import copy
import io

import pytest
import spmdx
import torch

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

VIEWS = {
    "conj": lambda z: z.conj(),
    "conj twice": lambda z: z.conj().conj(),
    "imag of conj": lambda z: z.conj().imag,
    "real of conj": lambda z: z.conj().real,
    "H": lambda z: z.mH,
    "part of conj": lambda z: z.conj()[1:, ::2],
    "conj of part": lambda z: z.t()[1].conj(),
    "detached": lambda z: z.conj().detach(),
    "neg view": lambda z: torch._neg_view(z),
    "neg of imag": lambda z: torch._neg_view(z.conj().imag),
    "as strided": lambda z: z.conj().as_strided((2, 3), (1, 2), 1),
    "conj in place of strides": lambda z: z.conj().t_(),
    "data": lambda z: z.conj().data,
}
WRITES = {
    "resolve_conj": lambda v: v.resolve_conj().mul_(2),
    "resolve_neg": lambda v: v.resolve_neg().mul_(2),
    "clone": lambda v: v.clone().mul_(2),
    "contiguous": lambda v: v.contiguous().mul_(2),
    "in place": lambda v: v.mul_(2),
    "copy": lambda v: v.copy_(v.flip(0)),
    "fill": lambda v: v.fill_(3),
    "zero": lambda v: v.zero_(),
    "part": lambda v: v.select(-1, 0).add_(1),
    "set": lambda v: v.__setitem__(0, 2),
    "add": lambda v: v.add_(v.conj_physical()),
    "set to another": lambda v: torch.empty(0, dtype=v.dtype, device=v.device).set_(v).mul_(2),
    "resize": lambda v: v.flatten().clone().conj().resize_(2).mul_(2),
    "out": lambda v: torch.mul(v.clone(), 2, out=v),
    "foreach": lambda v: torch._foreach_mul_([v], 2),
}
READS = {
    "bits": lambda v: (v.is_conj(), v.is_neg()),
    "sum": lambda v: v.sum(),
    "product": lambda v: v @ v.mH if v.dim() == 2 else v * v,
    "dot": lambda v: torch.vdot(v.flatten(), v.flatten() * 2),
    "cat": lambda v: torch.cat([v, v * 2]),
    "copied": lambda v: torch.empty_like(v).copy_(v),
    "to": lambda v: v.to(torch.complex128),
    "absolute": lambda v: v.abs(),
    "empty_like": lambda v: (torch.empty_like(v).is_conj(), torch.zeros_like(v)),
    "as real": lambda v: torch.view_as_real(v) if v.is_complex() else v,
    "as dtype": lambda v: v.view(torch.float64 if v.is_complex() else torch.int32),
    "as complex": lambda v: v if v.is_complex() else torch.view_as_complex(v[:, :2].contiguous()),
    "foreach": lambda v: torch._foreach_add([v, v], 1),
    "svd": lambda v: torch.linalg.svdvals(v),
}
MESHES = [None, (2,), (3,), (4,), (2, 2), (8,)]


def made(device, mesh, sizes=(5, 4)):
    torch.manual_seed(1)
    z = torch.randn(sizes, dtype=torch.complex64).to(device)
    if mesh and device == "spmdx":
        axes = ("x", "y")[: len(mesh)]
        count = torch.Size(mesh).numel()
        spmdx.mark_sharding(z, spmdx.Mesh(range(count), mesh, axes), (axes[0], None))
    return z


def seen(work):
    """What a call gives, on the CPU, or that it raises."""
    try:
        value = work()
    except (RuntimeError, IndexError) as error:
        return type(error)
    values = value if isinstance(value, list | tuple) else [value]
    return [
        (v.resolve_conj().resolve_neg().cpu(), v.is_conj(), v.is_neg())
        if isinstance(v, torch.Tensor)
        else v
        for v in values
    ]


def alike(a, b):
    if not isinstance(a, tuple):
        return a == b
    return torch.allclose(a[0], b[0], equal_nan=True) and a[1:] == b[1:]


def equal(got, wanted):
    if not isinstance(got, list) or not isinstance(wanted, list):
        return got == wanted
    return all(alike(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_writes_through_what_shows_a_conjugate_go_where_eager_writes(view, mesh):
    for name, write in WRITES.items():
        found = []
        for device in ("cpu", "spmdx"):
            z = made(device, mesh)
            v = VIEWS[view](z)
            done = seen(lambda v=v, write=write: write(v) is None)
            found.append([done, *seen(lambda v=v, z=z: [v, z])])
        assert found[0][0] == found[1][0], name
        assert equal(found[1][1:], found[0][1:]), (name, found)


@pytest.mark.parametrize("view", VIEWS)
def test_what_shows_a_conjugate_is_read_as_in_eager(view):
    for name, read in READS.items():
        plain, ours = (
            seen(lambda d=d, read=read: read(VIEWS[view](made(d, (2,))))) for d in ("cpu", "spmdx")
        )
        assert equal(ours, plain), (name, ours, plain)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_gradients_through_conjugates_equal_eagers(view, mesh):
    found = []
    for device in ("cpu", "spmdx"):
        z = made(device, mesh).requires_grad_()
        v = VIEWS[view](z * 2)
        if not v.requires_grad:
            return
        (v.resolve_conj().resolve_neg() * v).abs().sum().backward()
        found.append(z.grad.cpu())
    assert torch.allclose(*found)


def test_real_views_of_conjugates_are_refused_as_in_eager():
    z = made("spmdx", (2,)).conj()
    with pytest.raises(RuntimeError, match="unresolved conj"):
        torch.view_as_real(z)


def reloaded(*tensors):
    file = io.BytesIO()
    torch.save(list(tensors), file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("carry", [reloaded, lambda *x: copy.deepcopy(list(x))])
@pytest.mark.parametrize("view", VIEWS)
def test_copies_of_what_shows_a_conjugate_are_tied_as_in_eager(view, carry):
    plain, ours = (
        seen(lambda d=d: shifted(carry(z := made(d, (3,)), VIEWS[view](z))))
        for d in ("cpu", "spmdx")
    )
    if plain is not RuntimeError:  # PyTorch refuses to pickle one storage as two dtypes
        assert equal(ours, plain), (ours, plain)


def shifted(both):
    both[0].add_(2)
    return both


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_complex_numbers_may_begin_anywhere_in_memory(devices):
    x = torch.arange(36.0).reshape(6, 6)
    y = x.to("spmdx")
    spmdx.mark_sharding(y, spmdx.Mesh(range(devices), (devices,), ("x",)), ("x", None))
    for part in (lambda t: t[1:, 1:3], lambda t: t.view(-1)[4:10].view(3, 2), lambda t: t[:, 3:5]):
        for seen in (torch.view_as_complex, lambda t: t.view(torch.float64).view(torch.int64)):
            want, got = seen(part(x).contiguous()), seen(part(y).contiguous())
            assert torch.equal(got.cpu(), want)
