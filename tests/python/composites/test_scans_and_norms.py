# SPDX-License-Identifier: Apache-2.0
"""Extrema, scans and norms over a cut dim: right, with small traffic."""

import pytest
import torch
import torch.nn.functional as F
from composites import EIGHT, REDUCED, compare, integers, mesh_of, numbers, received

LAST = [(None, "x")]


def with_ties(*shape):
    return integers(4, *shape).double()


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [24, 7])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_lowest_position_of_an_extremum(devices, size, name):
    x = with_ties(6, size)
    x[2, size // 2] = x[2, -1] = float("nan")
    for arguments in [(-1,), (), (-1, True)]:
        report = compare(
            lambda t, a=arguments: getattr(t.detach(), name)(*a), [x], mesh_of(devices), LAST
        )
        assert report.wire_bytes <= 2 * (2 * 6 * EIGHT * (devices - 1) // devices)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [24, 7])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremum_of_a_cut_dim_with_gradient(devices, size, name):
    report = compare(lambda t: getattr(t, name)(-1), [with_ties(6, size)], mesh_of(devices), LAST)
    assert {c.kind for c in report.collectives} <= REDUCED
    assert report.wire_bytes <= 2 * (2 * 6 * EIGHT * (devices - 1) // devices)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [48, 7])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_a_cut_dim_moves_candidates(devices, size, largest):
    x = torch.stack(
        [torch.randperm(size, generator=torch.Generator().manual_seed(i)) for i in range(6)]
    )
    report = compare(lambda t: t.topk(3, -1, largest=largest), [x.double()], mesh_of(devices), LAST)
    if size == 48:
        candidates = 2 * 6 * 3 * devices * EIGHT  # values and positions
        assert report.wire_bytes <= candidates * (devices - 1) // devices


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [48, 7])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans_of_a_cut_dim_move_totals(devices, size, name):
    report = compare(
        lambda t: getattr(t, name)(-1), [numbers(6, size)], mesh_of(devices), LAST, relative=1e-8
    )
    if size == 48 and name == "cumsum":
        totals = 6 * devices * EIGHT * (devices - 1) // devices
        assert received(report, "all_gather") <= totals


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize(
    "spec", [(None, "x", None, None), (None, None, "x", None), ("x", None, None, None)]
)
@pytest.mark.parametrize(("channels", "groups"), [(8, 4), (8, 8), (6, 2), (6, 1)])
def test_group_norm(devices, spec, channels, groups):
    report = compare(
        lambda x, w, b: F.group_norm(x, groups, w, b),
        [numbers(4, channels, 6, 3), numbers(channels, seed=1), numbers(channels, seed=2)],
        mesh_of(devices),
        [spec, None, None],
    )
    idle_rows = spec[2] and 6 % devices and 4 % devices == 0  # an exchange to the batch may pay
    if not idle_rows and (channels % devices == 0 or not spec[1]):
        # no group lies on more devices than it must
        assert "all_to_all" not in {c.kind for c in report.collectives}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("width", [240, 71])
def test_rms_norm_and_layer_norm_over_a_cut_dim(devices, width):
    for norm in (F.rms_norm, F.layer_norm):
        report = compare(
            lambda x, w, norm=norm: norm(x, (width,), w),
            [numbers(10, width), numbers(width, seed=1)],
            mesh_of(devices),
            [(None, "x"), ("x",)],
        )
        assert {c.kind for c in report.collectives} <= REDUCED
        rows = 4 if norm is F.layer_norm else 2
        assert report.wire_bytes <= rows * (2 * 10 * EIGHT * (devices - 1) // devices)
