# SPDX-License-Identifier: Apache-2.0
"""What stencils over cut spatial dims move: the rows a device lacks of its windows, no more."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal

BATCH, CHANNELS, WIDTH = 2, 3, 16


def numbers(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def part(size, devices, index):
    rows = -(-size // devices)
    return min(index * rows, size), min((index + 1) * rows, size)


def lacking(reads, results, sources, devices):
    """Rows of the source that some device lacks at most; `reads` gives those of a result row."""
    most = 0
    for device in range(devices):
        start, stop = part(results, devices, device)
        first, last = part(sources, devices, device)
        needed = {row for r in range(start, stop) for row in reads(r)}
        whole = range(min(needed), max(needed) + 1) if needed else ()
        most = max(most, sum(not first <= row < last for row in whole))
    return most


def window(kernel, stride, padding, dilation, rows):
    def reads(point):
        start = point * stride - padding
        return [row for row in range(start, start + dilation * (kernel - 1) + 1) if 0 <= row < rows]

    return reads


def run(op, x, devices):
    """The report of a forward pass of `op` on x with its height cut; the result is the CPU's."""
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    ours = x.to("spmdx")
    spmdx.mark_sharding(ours, mesh, (None, None, "x", None))
    spmdx.mark_step()
    result = op(ours)
    report = spmdx.explain(result)
    spmdx.mark_step()
    assert_equal(result.cpu(), op(x), "the result", 1e-12)
    return report


def check_bytes(op, devices, height, reads):
    x = numbers(BATCH, CHANNELS, height, WIDTH)
    report = run(op, x, devices)
    rows = lacking(reads, op(x).shape[2], height, devices)
    lacked = rows * BATCH * CHANNELS * WIDTH * 8
    if report.count("all_to_all"):  # rows for columns, which cut no window, are fewer bytes
        assert report.wire_bytes < lacked, str(report)
    else:
        assert report.wire_bytes == lacked, str(report)
    assert not report.count("all_gather"), str(report)


WINDOWS = {  # kernel, stride, padding, dilation
    "3": (3, 1, 1, 1),
    "5": (5, 1, 2, 1),
    "strided": (3, 2, 1, 1),
    "no padding": (3, 2, 0, 1),
    "dilated": (3, 1, 2, 2),
    "wider than a part": (9, 1, 4, 1),
    "one side": (2, 1, 0, 1),
}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("height", [48, 37])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_convolution_moves_the_rows_its_windows_lack(devices, height, name):
    kernel, stride, padding, dilation = WINDOWS[name]
    weight = numbers(4, CHANNELS, kernel, 1)
    options = dict(stride=(stride, 1), padding=(padding, 0), dilation=(dilation, 1))
    op = lambda x: F.conv2d(x, weight.to(x), **options)  # noqa: E731
    check_bytes(op, devices, height, window(kernel, stride, padding, dilation, height))


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("height", [48, 37])
@pytest.mark.parametrize("kernel, stride, padding", [(3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 3, 2)])
def test_pooling_moves_the_rows_its_windows_lack(devices, height, kernel, stride, padding):
    reads = window(kernel, stride, padding, 1, height)
    for pool in (F.max_pool2d, F.avg_pool2d):
        for ceil_mode in (False, True):
            op = lambda x: pool(x, kernel, stride, padding, ceil_mode=ceil_mode)  # noqa: B023, E731
            check_bytes(op, devices, height, reads)


def linear(height, points, align):
    scale = (height - 1) / (points - 1) if align else height / points

    def reads(point):
        place = max(point * scale if align else (point + 0.5) * scale - 0.5, 0)
        return [min(int(place), height - 1), min(int(place) + 1, height - 1)]

    return reads


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("height, points", [(24, 48), (23, 46), (24, 40), (37, 20)])
def test_interpolation_moves_the_rows_its_points_lack(devices, height, points):
    size = (points, WIDTH * 2)
    nearest = lambda point: [point * height // points]  # noqa: E731
    check_bytes(lambda x: F.interpolate(x, size=size), devices, height, nearest)
    for align in (False, True):
        op = lambda x: F.interpolate(x, size=size, mode="bilinear", align_corners=align)  # noqa: B023, E731
        check_bytes(op, devices, height, linear(height, points, align))


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("height, points", [(48, 16), (48, 20), (37, 9)])
def test_adaptive_pooling_moves_the_rows_its_windows_lack(devices, height, points):
    def reads(point):
        return range(point * height // points, -(-(point + 1) * height // points))

    check_bytes(lambda x: F.adaptive_avg_pool2d(x, (points, 4)), devices, height, reads)
    check_bytes(lambda x: F.adaptive_max_pool2d(x, (points, 4)), devices, height, reads)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_padding_that_repeats_rows_moves_what_shifts(devices):
    height = 40
    reflected = lambda p: [min(abs(p - 2), 2 * (height - 1) - abs(p - 2))]  # noqa: E731
    repeated = lambda p: [min(max(p - 2, 0), height - 1)]  # noqa: E731
    check_bytes(lambda x: F.pad(x, (1, 1, 2, 2), mode="reflect"), devices, height, reflected)
    check_bytes(lambda x: F.pad(x, (1, 1, 2, 2), mode="replicate"), devices, height, repeated)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_training_step_moves_three_halos_and_the_weight_gradient(devices):
    """Forward and weight gradient take rows of x, the gradient of x rows of the gradient."""
    height, channels = 64, 8
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    x = numbers(BATCH, channels, height, 64).to("spmdx").requires_grad_()
    weight = numbers(channels, channels, 4, 4).to("spmdx").requires_grad_()
    spmdx.mark_sharding(x, mesh, (None, None, "x", None))
    spmdx.mark_sharding(weight, mesh, (None, None, None, None))
    spmdx.mark_step()
    F.conv2d(x, weight, stride=2, padding=1).square().sum().backward()
    spmdx.mark_step()
    report = spmdx.explain()
    field = min(devices - 1, 2) * BATCH * channels * 64 * 8
    points = min(devices - 1, 2) * BATCH * channels * 32 * 8
    sums = 2 * (weight.numel() * 8) * (devices - 1) // devices
    assert report.wire_bytes == 2 * field + points + sums, str(report)


OPS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max of rows apart": lambda x: F.max_pool2d(x, 2, 3, dilation=2, ceil_mode=True),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average inside": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "average by 5": lambda x: F.avg_pool2d(x, (5, 3), 1, (2, 0), divisor_override=5),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (7, 5)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (7, 5)),
    "area": lambda x: F.interpolate(x, size=(7, 12), mode="area"),
    "nearest": lambda x: F.interpolate(x, scale_factor=(2.3, 1.5)),
    "nearest-exact": lambda x: F.interpolate(x, size=(17, 8), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear, corners": lambda x: F.interpolate(
        x, size=(17, 31), mode="bilinear", align_corners=True
    ),
    "bicubic": lambda x: F.interpolate(x, size=(25, 8), mode="bicubic"),
    "bicubic, scale kept": lambda x: F.interpolate(
        x, scale_factor=(0.7, 1.3), mode="bicubic", recompute_scale_factor=False
    ),
    "reflect": lambda x: F.pad(x, (1, 2, 5, 3), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, 9, 3), mode="replicate"),
    "circular": lambda x: F.pad(x, (1, 2, 5, 3), mode="circular"),
}


def gradient_of(op, x):
    x.requires_grad_()
    result = op(x)
    weights = torch.linspace(0.5, 2, result.numel(), dtype=torch.float64).view(result.shape)
    (result.tanh() * weights.to(result)).sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize(
    "spec", [("a", None, "b", None), (None, None, "a", "b"), (None, None, ("a", "b"), None)]
)
@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (1, 3)])
@pytest.mark.parametrize("name", OPS)
def test_results_and_gradients(name, shape, spec):
    mesh = spmdx.Mesh(range(shape[0] * shape[1]), shape, ("a", "b"))
    for height in (24, 13):
        x = numbers(4, 2, height, 16)
        ours = x.to("spmdx")
        spmdx.mark_sharding(ours, mesh, spec)
        spmdx.mark_step()
        for ours_of, theirs in zip(
            gradient_of(OPS[name], ours), gradient_of(OPS[name], x), strict=True
        ):
            assert_equal(ours_of.cpu(), theirs, name, 1e-12)


def test_ties_and_infinities_keep_their_indices():
    """Where a window holds one value only, the first place counts, also at the border."""
    x = torch.full((1, 2, 12, 6), float("-inf"), dtype=torch.float64)
    x[:, :, 5:7] = 1
    want = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    mesh = spmdx.Mesh(range(4), (4,), ("x",))
    ours = x.to("spmdx")
    spmdx.mark_sharding(ours, mesh, (None, None, "x", None))
    got = F.max_pool2d(ours, 3, 2, 1, return_indices=True)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a.cpu(), b)


@pytest.mark.parametrize("ndim", [1, 3])
def test_one_and_three_dims(ndim):
    mesh = spmdx.Mesh(range(4), (4,), ("x",))
    pools = {1: (F.max_pool1d, F.avg_pool1d), 3: (F.max_pool3d, F.avg_pool3d)}[ndim]
    mode = {1: "linear", 3: "trilinear"}[ndim]
    ops = [lambda x, p=p: p(x, 3, 2, 1) for p in pools]
    ops.append(lambda x: F.interpolate(x, scale_factor=2, mode=mode))
    ops.append(lambda x: F.interpolate(x, scale_factor=2))
    for op in ops:
        x = numbers(2, 2, *[13, 6, 6][:ndim])
        ours = x.to("spmdx")
        spmdx.mark_sharding(ours, mesh, (None, None, "x", *[None] * (ndim - 1)))
        spmdx.mark_step()
        for a, b in zip(gradient_of(op, ours), gradient_of(op, x), strict=True):
            assert_equal(a.cpu(), b, str(op), 1e-12)
