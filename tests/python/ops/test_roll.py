# SPDX-License-Identifier: Apache-2.0
"""Rolls along a cut dim: right for any shift, and only the rows that change devices move."""

import pytest
import spmdx
import torch

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


def rolled(x, spec, shifts, dims, devices=4):
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    cut = spmdx.mark_sharding(x.to("spmdx"), mesh, spec)
    cut.requires_grad_()
    spmdx.mark_step()
    y = cut.roll(shifts, dims)
    (y * torch.arange(y.numel(), dtype=x.dtype).view(y.shape).to("spmdx")).sum().backward()
    spmdx.mark_step()
    return y.detach().cpu(), cut.grad.cpu()


@pytest.mark.parametrize("rows", [12, 13, 3, 1])
@pytest.mark.parametrize("shift", [0, 1, -1, 3, 4, -7, 11, 29])
@pytest.mark.parametrize("spec", [("data", None), (None, "data")])
def test_a_roll_is_that_of_the_whole_tensor(rows, shift, spec):
    x = torch.randn(rows, 8, dtype=torch.float64)
    for shifts, dims in (((shift,), (0,)), ((shift, 2), (0, 1)), ((2, shift), (0, 0)), (shift, ())):
        whole = x.clone().requires_grad_()
        expected = whole.roll(shifts, dims)
        (expected * torch.arange(8.0 * rows, dtype=x.dtype).view(rows, 8)).sum().backward()
        found, gradient = rolled(x, spec, shifts, dims)
        assert torch.equal(found, expected.detach()), (shifts, dims)
        assert torch.equal(gradient, whole.grad), (shifts, dims)


@pytest.mark.parametrize("shift, rows", [(1, 1), (-1, 1), (2, 2), (-2, 2)])
def test_only_the_rows_that_change_devices_move(shift, rows):
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    x = spmdx.mark_sharding(torch.zeros(64, 4096).to("spmdx"), mesh, ("data", None))
    spmdx.mark_step()
    report = spmdx.explain(x.roll(shift, 0))
    assert report.wire_bytes == rows * 4096 * 4
