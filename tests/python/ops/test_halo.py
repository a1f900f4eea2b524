# SPDX-License-Identifier: Apache-2.0
"""Convolutions over cut spatial dims: equal to plain PyTorch, with no more moved than halos."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal

MESHES = [2, 3, 4, 8]


def numbers(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def train(conv, tensors, frozen=()):
    """The result of `conv` and the gradients of all tensors, None for those that are frozen."""
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i not in frozen)
    result = conv(*tensors)
    (result.tanh() * torch.linspace(0.5, 2, result.shape[-1]).to(result)).sum().backward()
    return [result.detach(), *(t.grad for t in tensors)]


def check(conv, tensors, mesh, spec, frozen=()):
    """`conv` of x cut as `spec`, and its gradients, are those of the CPU; gives the report."""
    want = train(conv, [t.clone() for t in tensors], frozen)
    ours = [t.to("spmdx") for t in tensors]
    spmdx.mark_sharding(ours[0], mesh, spec)
    for tensor in ours[1:]:
        spmdx.mark_sharding(tensor, mesh, (None,) * tensor.dim())
    spmdx.mark_step()
    got = train(conv, ours, frozen)
    spmdx.mark_step()
    report = spmdx.explain()
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert (a is None) == (b is None)
        if a is not None:
            assert_equal(a.cpu(), b, f"tensor {i}")
    return report


def line(devices):
    return spmdx.Mesh(range(devices), (devices,), ("x",))


KINDS = {
    "3": dict(size=3, padding=1),
    "5": dict(size=5, padding=2),
    "1": dict(size=1),
    "dilated": dict(size=3, padding=2, dilation=2),
    "even window": dict(size=2, padding="same"),
    "one-sided": dict(size=3, padding=1, stride=2),
    "smaller": dict(size=3),
    "larger": dict(size=1, padding=1),
    "grouped": dict(size=3, padding=1, groups=2),
    "depthwise": dict(size=3, padding=1, groups=4),
    "wide": dict(size=7, padding=3),
    "strided and dilated": dict(size=3, padding=2, stride=2, dilation=2),
    "steps over rows": dict(size=1, stride=3),
    "same": dict(size=4, padding="same", dilation=2),
}


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("height", [24, 13, 8])
def test_a_cut_height(devices, kind, height):
    options = dict(KINDS[kind])
    size, groups = options.pop("size"), options.get("groups", 1)
    tensors = [numbers(2, 4, height, 6), numbers(8, 4 // groups, size, size), numbers(8)]
    spec = (None, None, "x", None)
    check(lambda x, w, b: F.conv2d(x, w, b, **options), tensors, line(devices), spec)
    check(lambda x, w: F.conv2d(x, w, **options), tensors[:2], line(devices), spec, frozen=(0,))


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("length", [24, 10])
def test_a_cut_sequence(devices, length):
    tensors = [numbers(3, 4, length), numbers(6, 4, 3), numbers(6)]
    conv = lambda x, w, b: F.conv1d(x, w, b, padding=1)  # noqa: E731
    check(conv, tensors, line(devices), (None, None, "x"))
    check(conv, tensors, line(devices), (None, None, "x"), frozen=(1,))


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("dim", [2, 3, 4])
def test_a_cut_dim_of_three(devices, dim):
    tensors = [numbers(1, 2, 8, 4, 4), numbers(3, 2, 3, 3, 3), numbers(3)]
    spec = tuple("x" if d == dim else None for d in range(5))
    check(lambda x, w, b: F.conv3d(x, w, b, padding=1), tensors, line(devices), spec)


@pytest.mark.parametrize(
    "spec", [("a", None, "b", None), (None, None, "a", "b"), (None, "a", "b", None)]
)
@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (3, 2)])
def test_two_axes(spec, shape):
    mesh = spmdx.Mesh(range(shape[0] * shape[1]), shape, ("a", "b"))
    tensors = [numbers(4, 6, 12, 16), numbers(6, 6, 3, 3), numbers(6)]
    check(lambda x, w, b: F.conv2d(x, w, b, padding=1), tensors, mesh, spec)


TRANSPOSED = {
    "1": dict(padding=1),
    "stride": dict(stride=2, padding=1, output_padding=1),
    "gaps": dict(stride=4),
    "dilated": dict(padding=2, dilation=2, stride=2),
    "grouped": dict(padding=1, groups=2),
}


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("kind", TRANSPOSED)
def test_a_transposed_convolution(devices, kind):
    options = TRANSPOSED[kind]
    tensors = [numbers(2, 4, 13, 6), numbers(4, 6 // options.get("groups", 1), 3, 3), numbers(6)]
    conv = lambda x, w, b: F.conv_transpose2d(x, w, b, **options)  # noqa: E731
    check(conv, tensors, line(devices), (None, None, "x", None))


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_two_layers_send_halos_and_sums_of_weight_gradients(devices):
    batch, channels, height, width = 2, 8, 64, 64
    tensors = [numbers(batch, channels, height, width)]
    tensors += [numbers(channels, channels, 3, 3) / 9 for _ in range(2)]

    def net(x, first, second):
        return F.conv2d(F.conv2d(x, first, padding=1).relu(), second, padding=1)

    report = check(net, tensors, line(devices), (None, None, "x", None), frozen=(0,))
    halo = 2 * batch * channels * width * 8  # a row before and a row after
    sums = 2 * (2 * channels * channels * 9 * 8) * (devices - 1) // devices
    uses = 5  # forward twice; backward: both operands again, and the gradient between the layers
    assert report.wire_bytes <= uses * halo + sums, str(report)
    assert not report.count("all_gather"), str(report)


def test_a_residual_net_over_a_cut_height():
    """Norm, pooling and stride between: what needs whole heights gathers, all is right."""

    def net(x, w, v):
        h = F.conv2d(x, w, padding=1)
        h = F.group_norm(h, 2).relu() + x
        return F.avg_pool2d(F.conv2d(h, v, padding=1, stride=2), 2)

    tensors = [numbers(2, 4, 16, 16), numbers(4, 4, 3, 3), numbers(8, 4, 3, 3)]
    for devices in (2, 4):
        check(net, tensors, line(devices), (None, None, "x", None))
