# SPDX-License-Identifier: Apache-2.0
"""Reports say which products devices repeat, and which annotation would share them out."""

import ast

import pytest
import spmdx
import torch

SIZES = [2, 3, 4, 8]


def report_of(group, spec=None):
    """A product that is wanted whole, and too small to be worth a move, beside one that is cut."""
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(group), (group,), ("data",))
        x = spmdx.mark_sharding(torch.ones(64, 32).to("spmdx"), mesh, ("data", None))
        small, w = torch.ones(24, 32).to("spmdx"), torch.ones(32, 24).to("spmdx")
        if spec is not None:
            spmdx.mark_sharding(small, mesh, spec)
        kept = x @ w, spmdx.mark_sharding(small @ w, mesh, (None, None))
        spmdx.mark_step()
        report = spmdx.explain()
        del kept
    return report


@pytest.mark.parametrize("group", SIZES)
def test_what_devices_repeat_is_said_with_its_line_and_what_would_cut_it(group):
    report = report_of(group)
    (same,) = report.balance
    assert (same.op, same.count, same.devices, same.flops) == (
        "aten.mm",
        1,
        group,
        2 * 24 * 32 * 24,
    )
    assert same.source.startswith("test_balance.py:") and same.operand == "f32[24, 32]"
    assert same.spec == "('data', None)"
    text = " ".join(str(report).split())  # however it is broken into lines
    assert f"aten.mm at {same.source}: {group} devices do the same." in text
    assert "spmdx.mark_sharding(x, mesh, ('data', None))" in text
    assert report.to_dict()["balance"][0]["devices"] == group


@pytest.mark.parametrize("group", SIZES)
def test_the_annotation_that_it_names_shares_the_work_out(group):
    (same,) = report_of(group).balance
    report = report_of(group, ast.literal_eval(same.spec))
    assert report.balance == [] and "do the same" not in str(report)
    assert report.flops < report_of(group).flops


def test_equal_products_of_a_line_are_one_row_and_small_ones_are_not_printed():
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(4), (4,), ("data",))
        x = spmdx.mark_sharding(torch.ones(4096, 256).to("spmdx"), mesh, ("data", None))
        a, w = torch.ones(4, 4).to("spmdx"), torch.ones(256, 256).to("spmdx")
        products = [a @ a.mul(i) for i in range(1, 4)]
        kept = x @ w, [spmdx.mark_sharding(p, mesh, (None, None)) for p in products]
        spmdx.mark_step()
        report = spmdx.explain()
        del kept
    (same,) = report.balance
    assert (same.count, same.flops) == (3, 3 * 2 * 4**3)
    assert "do the same" not in str(report)


def test_an_op_whose_dims_no_axis_can_cut_says_so():
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(4), (4,), ("data",))
        x = spmdx.mark_sharding(torch.ones(8, 2).to("spmdx"), mesh, ("data", None))
        a = torch.ones(1, 64).to("spmdx")
        kept = x.exp(), a @ a.t()
        spmdx.mark_step()
        report = spmdx.explain()
        del kept
    (same,) = report.balance
    assert same.spec == "" and "No dim of an operand can be cut further." in str(same)


def test_one_device_repeats_nothing():
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(1), (1,), ("data",))
        x = spmdx.mark_sharding(torch.ones(8, 8).to("spmdx"), mesh, ("data", None))
        kept = x @ x
        spmdx.mark_step()
        assert spmdx.explain().balance == []
        del kept
