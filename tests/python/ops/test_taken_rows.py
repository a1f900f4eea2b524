# SPDX-License-Identifier: Apache-2.0
"""Slices and padding along a cut dim: right for any, and only the rows that change devices move."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from composites import compare, fewest_bytes, mesh_of, run

DEVICES = pytest.mark.parametrize("devices", [2, 3, 4, 8, "4x2"])
TAKES = {
    "first": lambda x: x[:-1],
    "last": lambda x: x[1:],
    "middle": lambda x: x[5:19],
    "every second": lambda x: x[::2],
    "every third": lambda x: x[2:23:3],
    "padded": lambda x: F.pad(x, (0, 0, 2, 3)),
    "padded and cut off": lambda x: F.pad(x, (0, 0, 3, -2)),
    "shifted": lambda x: F.pad(x, (1, -1, 1, -1)),
    "padded in both dims": lambda x: F.pad(x, (2, 0, 0, 5)),
    "padded with ones": lambda x: F.pad(x, (1, 1, 1, 1), value=1.0),
    "differences": lambda x: x[1:] - x[:-1],
    "written": lambda x: torch.cat((x[12:], x[:12])),
}


def numbers(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@DEVICES
@pytest.mark.parametrize("rows", [24, 25, 31])
@pytest.mark.parametrize("take", TAKES)
def test_it_is_what_it_is_of_the_whole_tensor(take, rows, devices):
    specs = [("x", None), (None, "x")]
    if devices == "4x2":
        specs += [(("x", "y"), None), (None, ("x", "y")), ("x", "y"), ("y", "x")]
    for spec in specs:
        compare(TAKES[take], [numbers(rows, 24)], mesh_of(devices), [spec])


@DEVICES
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_any_type_is_taken(dtype, devices):
    x = numbers(24, 3).mul(3).to(dtype)
    spec = ("x", None)
    for take in ("middle", "every second", "padded"):
        got = run(lambda x, t=take: TAKES[t](x.detach()), [x], "spmdx", mesh_of(devices), [spec])[0]
        assert torch.equal(got[0], TAKES[take](x)), take


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_sums_that_are_not_finished_are_taken(devices):
    """Rows of a product whose inner dim is cut."""
    a, b = numbers(32, 24), numbers(24, 16)
    compare(lambda a, b: (a @ b)[3:30], [a, b], mesh_of(devices), [(None, "x"), ("x", None)])


@pytest.mark.parametrize(
    "take, rows",
    [
        (lambda x: x[1:], 1),  # every part begins a row later
        (lambda x: x[:-1], 0),  # 63 rows are cut as 64 are
        (lambda x: F.pad(x, (0, 0, 1, -1)), 1),
        (lambda x: F.pad(x, (0, 0, 2, 2)), 1),  # of 68 rows a part has 17
        (lambda x: x[::2], 0),
        (lambda x: x[4:60:2], 1),
    ],
    ids=["later", "earlier", "shifted", "padded", "every second", "some"],
)
def test_only_the_rows_that_change_devices_move(take, rows):
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    x = spmdx.mark_sharding(torch.zeros(64, 4096).to("spmdx"), mesh, ("data", None))
    spmdx.mark_step()
    with fewest_bytes():
        report = spmdx.explain(take(x) * 2)
    assert report.wire_bytes == rows * 4096 * 4
