# SPDX-License-Identifier: Apache-2.0
"""A few rows of a cut dim, read and written by who holds them: right for any, and little moves."""

import pytest
import spmdx
import torch
from composites import compare, fewest_bytes, least_work, mesh_of, numbers, run

DEVICES = pytest.mark.parametrize("devices", [2, 3, 4, 8, "4x2"])


def scattered(x, y):
    return torch.select_scatter(x, y[3], 0, 17), torch.slice_scatter(x, y[:5], 0, 11, 25, 3)


def written(x, y):
    z = x.clone()
    z[7:9] = y[:2]
    z[-1] = y[0] * 2
    z[3:20:4] += y[:5]
    return z


READS = {
    "first": lambda x: x[:1] * 2,
    "last": lambda x: x[-1] * 2,
    "ten": lambda x: x[6:16].exp(),
    "every fifth": lambda x: x[2::5] + 1,
    "columns": lambda x: x[:, 3] * x[:, -3:].sum(1),
    "none": lambda x: x[4:4] * 2,
    "two of three": lambda x: x[1] - x[2] + x[0],
    "of a merged dim": lambda x: x.view(-1)[5:9] * 3,
    "of a product": lambda x: (x @ x.t())[:3],
}
WRITES = {"scattered": scattered, "written": written}


def specs_of(devices):
    if devices != "4x2":
        return [("x", None), (None, "x")]
    return [("x", None), (("x", "y"), None), ("y", "x")]


@pytest.mark.parametrize("moves_are_free", [False, True])
@DEVICES
@pytest.mark.parametrize("rows", [24, 29])
@pytest.mark.parametrize("read", READS)
def test_reading(read, rows, devices, moves_are_free):
    with least_work() if moves_are_free else fewest_bytes():
        for spec in specs_of(devices):
            compare(READS[read], [numbers(rows, 24)], mesh_of(devices), [spec])


@pytest.mark.parametrize("moves_are_free", [False, True])
@DEVICES
@pytest.mark.parametrize("rows", [26, 29])
@pytest.mark.parametrize("write", WRITES)
def test_writing(write, rows, devices, moves_are_free):
    values = [numbers(rows, 24), numbers(6, 24, seed=1)]
    with least_work() if moves_are_free else fewest_bytes():
        for spec in specs_of(devices):
            for of_source in (spec, (None, None)):
                compare(WRITES[write], values, mesh_of(devices), [spec, of_source])


@DEVICES
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_any_type(dtype, devices):
    x, y = numbers(26, 3).mul(3).to(dtype), numbers(6, 3, seed=1).mul(3).to(dtype)
    mesh = mesh_of(devices)
    for name in ("last", "ten"):
        function = {"last": lambda x: x[-1], "ten": lambda x: x[6:16]}[name]
        got = run(lambda x, f=function: f(x.detach()), [x], "spmdx", mesh, [("x", None)])[0]
        assert torch.equal(got[0], function(x)), name
    specs = [("x", None), (None, None)]
    got = run(lambda x, y: scattered(x.detach(), y.detach()), [x, y], "spmdx", mesh, specs)[0]
    for mine, whole in zip(got, scattered(x, y), strict=True):
        assert torch.equal(mine, whole)


def explained(function, *tensors):
    """Of tensors of 4096 rows of 64 elements; those that are not the first are whole."""
    mesh = spmdx.Mesh(range(8), (8,), ("x",))
    with spmdx.plan_only():
        placed = [torch.empty(shape, device="spmdx").requires_grad_() for shape in tensors]
        spmdx.mark_sharding(placed[0], mesh, ("x", None))
        spmdx.mark_step()
        return spmdx.explain(function(*placed))


def test_what_is_written_does_not_move():
    def cache(x, y):
        x = x.detach()
        x[4000:4003] = y.detach()
        return x * 2

    assert explained(cache, (4096, 64), (3, 64)).wire_bytes == 0


def test_what_is_read_is_a_sum_of_its_size():
    row = 64 * 4
    report = explained(lambda x: x[-1] * 2, (4096, 64))
    assert report.wire_bytes == row * 7 // 8  # each device goes on with a part of the row
    report = explained(lambda x: (x * x)[-1].sin().sum(), (4096, 64))
    assert report.wire_bytes <= 2 * row


def test_the_gradient_of_a_row_is_placed_by_its_owner():
    def gradient(x):
        (x * 2)[-1].square().sum().backward()
        return x.grad

    report = explained(gradient, (4096, 64))
    assert report.wire_bytes <= 2 * 64 * 4
    assert "aten.select_backward" not in [value.op for value in report.values]


def test_a_part_of_a_long_dim_is_shared_out():
    """Of a hundred rows each device takes thirteen."""
    report = explained(lambda x: x[:100] * 2, (4096, 64))
    assert report.wire_bytes == 13 * 64 * 4


def test_planning_does_not_depend_on_the_length():
    """A range is two numbers, however long the dim is."""
    report = explained(lambda x: x[123_456_789] * 2, (1 << 28, 1))
    assert report.wire_bytes <= 8
