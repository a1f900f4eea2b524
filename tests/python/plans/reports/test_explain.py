# SPDX-License-Identifier: Apache-2.0
"""explain says which collectives a program has, what they cost, and why."""

import inspect
import json
import os

import pytest
import spmdx
import torch

FILE = os.path.basename(__file__)


@pytest.fixture(scope="module")
def mesh():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    return spmdx.Mesh(range(8), (4, 2), ("data", "model"))


def marked(mesh, spec, *shape):
    """Data that lie on the devices as annotated: uploading them is no part of what is explained."""
    tensor = spmdx.mark_sharding(torch.ones(*shape).to("spmdx"), mesh, spec)
    spmdx.mark_step()
    return tensor


def test_a_cut_contraction_is_one_all_reduce_with_bytes_axes_and_line(mesh):
    x, w = marked(mesh, (None, "model"), 16, 32), marked(mesh, ("model", None), 32, 8)
    y = x @ w
    report = spmdx.explain(y)
    line = (
        inspect.getsourcelines(test_a_cut_contraction_is_one_all_reduce_with_bytes_axes_and_line)[1]
        + 2
    )
    assert [c.kind for c in report.collectives] == ["all_reduce"]
    found = report.collectives[0]
    assert (found.axes, found.group_size, found.dtype, found.count) == (("model",), 2, "f32", 1)
    assert found.bytes == 2 * 16 * 8 * 4 * 1 // 2 == report.wire_bytes
    assert found.source == f"{FILE}:{line}" and found.cause
    assert report.count("all_reduce") == 1 and report.count("all_gather") == 0


def test_explaining_runs_nothing(mesh):
    x = marked(mesh, ("data",), 8)
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    spmdx.explain(x + 1)
    assert spmdx.debug.counters()["steps"] == 0


def test_values_tell_type_sharding_and_provenance(mesh):
    y = torch.relu(marked(mesh, ("data", None), 16, 4))
    row = next(v for v in spmdx.explain(y).values if v.op.startswith("aten.relu"))
    assert (row.shape, row.dtype, row.sharding) == ((16, 4), "f32", "f32[16@data, 4]")
    assert "annotation" in row.provenance
    assert row.source.startswith(FILE)


def test_the_last_program_is_reported_and_agrees_with_the_counters(mesh):
    x = marked(mesh, ("data", None), 16, 4)
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    total = x.sum()
    spmdx.sync(wait=True)
    report, counted = spmdx.explain(), spmdx.debug.counters()
    assert report.mesh == "Mesh(data=4, model=2)"
    assert counted["collectives"] == sum(c.count for c in report.collectives) == 1
    assert counted["wire_bytes"] == report.wire_bytes == 2 * 4 * 3 // 4
    assert report.peak_bytes > 0
    assert total.item() == 64.0


def test_an_op_without_a_rule_is_reported_with_what_was_gathered(mesh):
    x = marked(mesh, ("data", None), 16, 16)
    row = spmdx.explain(torch.linalg.matrix_exp(x)).fallbacks
    assert [f.op for f in row] == ["aten.linalg_matrix_exp"]
    assert row[0].bytes == 16 * 16 * 4 * 3 // 4
    assert row[0].source.startswith(FILE)


def test_a_report_prints_as_tables_and_turns_into_plain_values(mesh):
    report = spmdx.explain(marked(mesh, ("data", None), 16, 4).sum())
    text = str(report)
    for part in ("Mesh(data=4, model=2)", "Collectives", "all_reduce", "Values", "aten.sum"):
        assert part in text
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["wire_bytes"] == report.wire_bytes
    assert plain["collectives"][0]["kind"] == "all_reduce"
