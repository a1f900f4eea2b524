# SPDX-License-Identifier: Apache-2.0
"""Joining and taking apart along a cut dim: equal to plain PyTorch, on even and uneven sizes."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal

MESHES = [2, 3, 4, 8]


def line(devices):
    return spmdx.Mesh(range(devices), (devices,), ("x",))


def check(program, tensors, specs, devices):
    """Results and gradients of `program` with cut operands equal those on the CPU."""
    mesh = line(devices)
    host = [t.clone().requires_grad_() for t in tensors]
    ours = [t.to("spmdx").requires_grad_() for t in tensors]
    for tensor, spec in zip(ours, specs, strict=True):
        spmdx.mark_sharding(tensor, mesh, spec)
    want, got = program(*host), program(*ours)
    weight = torch.linspace(0.5, 2, want.numel(), dtype=want.dtype).view(want.shape)
    (want * weight).sum().backward()
    (got * weight.to("spmdx")).sum().backward()
    spmdx.mark_step()
    assert_equal(got.detach().cpu(), want.detach(), "the result")
    for i, (a, b) in enumerate(zip(ours, host, strict=True)):
        assert_equal(a.grad.cpu(), b.grad, f"gradient {i}")


def numbers(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("rows", [24, 16, 7, 1])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("dim", [0, 1])
def test_equal_tensors_are_joined(devices, rows, count, dim):
    shape = (rows, 5) if dim == 0 else (5, rows)
    spec = ("x", None) if dim == 0 else (None, "x")
    parts = [numbers(*shape) + i for i in range(count)]
    check(lambda *p: torch.cat(p, dim).square(), parts, [spec] * count, devices)


@pytest.mark.parametrize("devices", MESHES)
def test_unequal_tensors_are_joined(devices):
    parts = [numbers(16, 3), numbers(8, 3), numbers(5, 3)]
    specs = [("x", None), (None, None), ("x", None)]
    check(lambda *p: torch.cat(p).square(), parts, specs, devices)


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("width", [24, 8, 6, 5])
@pytest.mark.parametrize("pieces", [2, 3])
def test_a_fused_projection_is_taken_apart(devices, width, pieces):
    def program(x, weight):
        *gates, value = F.linear(x, weight).chunk(pieces, dim=-1)
        for gate in gates:
            value = value * gate.tanh()
        return value

    tensors = [numbers(12, 10), numbers(pieces * width, 10)]
    for specs in ([(None, None), ("x", None)], [("x", None), ("x", None)], [(None, "x")] * 2):
        check(program, tensors, specs, devices)


@pytest.mark.parametrize("devices", MESHES)
def test_pieces_that_are_kept_and_pieces_that_are_not_read(devices):
    def program(x):
        first, second, third, _ = x.split(x.shape[1] // 4, dim=1)
        return first * third + x[:, : x.shape[1] // 4] - second.sum()

    for width in (16, 24, 4):
        check(program, [numbers(6, width)], [(None, "x")], devices)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_fused_gated_layer_trains_for_the_bytes_of_a_separate_one(devices):
    """w1 and w3 in one matrix: its rows change places, the activations stay where they are."""
    mesh, width, hidden, rows = line(devices), 32, 64, 4096
    x = torch.randn(rows, width).to("spmdx")
    spmdx.mark_sharding(x, mesh, (None, None))
    fused = torch.randn(2 * hidden, width).to("spmdx").requires_grad_()
    down = torch.randn(width, hidden).to("spmdx").requires_grad_()
    spmdx.mark_sharding(fused, mesh, ("x", None))
    spmdx.mark_sharding(down, mesh, (None, "x"))
    spmdx.mark_step()

    def loss():
        gate, value = F.linear(x, fused).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * value, down).square().mean()

    loss().backward()
    spmdx.mark_step()
    report = spmdx.explain()
    share = (devices - 1) / devices
    forward_sum, weight_rows = 2 * rows * width * 4 * share, 2 * hidden * width * 4
    assert report.wire_bytes <= forward_sum + 3 * weight_rows, str(report)
