# SPDX-License-Identifier: Apache-2.0
"""Reports say what changed and draw what happens when."""

import inspect
import io
import json
import os

import pytest
import spmdx
import torch
from spmdx._report.report import SpanReport

FILE = os.path.basename(__file__)


@pytest.fixture(scope="module", autouse=True)
def devices():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)


@pytest.fixture(autouse=True)
def own_plans():
    """A plan keeps the lines of the first program it was made for."""
    spmdx._C.clear_cache()
    yield
    spmdx._C.clear_cache()


@pytest.fixture(scope="module")
def mesh():
    return spmdx.Mesh(range(8), (4, 2), ("data", "model"))


def placed(mesh, spec, *shape):
    tensor = spmdx.mark_sharding(torch.ones(*shape).to("spmdx"), mesh, spec)
    spmdx.mark_step()
    return tensor


def line(offset, function):
    return f"{FILE}:{inspect.getsourcelines(function)[1] + offset}"


def layer(x, w1, w2, mesh=None):
    hidden = torch.relu(x @ w1)
    if mesh is not None:
        spmdx.mark_sharding(hidden, mesh, ("data", None))
    return hidden @ w2


def reports(mesh, specs_before, specs_after, marked=False):
    found = []
    for specs, here in ((specs_before, None), (specs_after, mesh if marked else None)):
        shapes = (16, 32), (32, 64), (64, 32)
        tensors = [placed(mesh, spec, *shape) for spec, shape in zip(specs, shapes, strict=True)]
        found.append(spmdx.explain(layer(*tensors, here)))
    return found


WHOLE = (None, None)
DATA = ("data", None)
COLUMN, ROW = (None, "model"), ("model", None)


# ---- differences --------------------------------------------------------------------------------


def test_equal_plans_have_no_difference(mesh):
    before, after = reports(mesh, (DATA, COLUMN, ROW), (DATA, COLUMN, ROW))
    diff = spmdx.explain_diff(before, after)
    assert not diff and diff.wire_bytes == 0 and diff.peak_bytes == 0
    assert str(diff).endswith("The plans are the same.")


def test_one_more_annotation_shows_what_it_added(mesh):
    before, after = reports(mesh, (DATA, WHOLE, WHOLE), (DATA, COLUMN, ROW))
    diff = spmdx.explain_diff(before, after)
    assert [(c.what, c.after.kind, c.after.axes) for c in diff.collectives] == [
        ("new", "all_reduce", ("model",))
    ]
    assert diff.wire_bytes == 2 * 4 * 32 * 4 // 2 == after.wire_bytes
    changed = {v.after.op: (v.before.sharding, v.after.sharding) for v in diff.values}
    assert changed["aten.relu"] == ("f32[16@(data,model), 64]", "f32[16@data, 64@model]")
    assert diff.peak_bytes < 0


def test_taken_back_it_shows_what_went(mesh):
    before, after = reports(mesh, (DATA, COLUMN, ROW), (DATA, WHOLE, WHOLE))
    diff = spmdx.explain_diff(before, after)
    assert [(c.what, c.before.kind, c.after) for c in diff.collectives] == [
        ("gone", "all_reduce", None)
    ]
    assert diff.wire_bytes == -before.wire_bytes < 0


def test_another_size_of_the_same_collective_is_a_change(mesh):
    def report(rows):
        x, w = placed(mesh, COLUMN, rows, 32), placed(mesh, ROW, 32, 8)
        return spmdx.explain(x @ w)

    diff = spmdx.explain_diff(report(16), report(64))
    assert [(c.what, c.before.bytes, c.after.bytes) for c in diff.collectives] == [
        ("changed", 16 * 8 * 4, 64 * 8 * 4)
    ]


def test_lines_that_moved_are_no_difference(mesh):
    before = spmdx.explain(placed(mesh, DATA, 16, 4).sum(0))
    spmdx._C.clear_cache()  # a plan keeps the lines of the program it was made for
    after = spmdx.explain(placed(mesh, DATA, 16, 4).sum(0))
    assert before.collectives[0].source != after.collectives[0].source
    assert not spmdx.explain_diff(before, after)


def test_a_difference_prints_what_changed_and_why(mesh):
    before, after = reports(mesh, (DATA, WHOLE, WHOLE), (DATA, COLUMN, ROW))
    diff = spmdx.explain_diff(before, after)
    text = str(diff)
    lines = text.splitlines()
    assert lines[0] == "collectives: 0 → 1 (+1)"
    assert lines[1] == "bytes over the wire: 0 → 512 (+512)"
    saved = before.peak_bytes - after.peak_bytes
    assert lines[2] == (
        f"bytes of memory: {before.peak_bytes:,} → {after.peak_bytes:,} (-{saved:,})"
    )
    for part in ("new", "all_reduce", "Shardings", "64@model", "because of", "annotation", FILE):
        assert part in text
    assert json.loads(json.dumps(diff.to_dict()))["wire_bytes"] == diff.wire_bytes


def test_a_constraint_inside_a_model_shows_as_the_collective_it_costs(mesh):
    before, after = reports(mesh, (DATA, COLUMN, ROW), (DATA, COLUMN, ROW), marked=True)
    diff = spmdx.explain_diff(before, after)
    assert diff.wire_bytes > 0 and {c.what for c in diff.collectives} <= {"new", "changed"}
    gathers = [c.after for c in diff.collectives if c.after.kind == "all_gather"]
    assert gathers and all(c.cause and c.source.startswith(FILE) for c in gathers)


def test_what_is_no_report_is_refused(mesh):
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.explain_diff(spmdx.explain(placed(mesh, DATA, 8, 4) + 1), "report")
    assert str(caught.value) == (
        f"{line(2, test_what_is_no_report_is_refused)}: explain_diff: an argument is a str. "
        "Expected two reports. Pass what spmdx.explain() returned before and after the change."
    )


# ---- time lines ---------------------------------------------------------------------------------


def training_report(mesh):
    x, w1, w2 = (
        placed(mesh, spec, *shape)
        for spec, shape in ((DATA, (64, 256)), (COLUMN, (256, 512)), (ROW, (512, 256)))
    )
    for w in (w1, w2):
        w.requires_grad_()
    layer(x, w1, w2).square().mean().backward()
    spmdx.mark_step()
    return spmdx.explain()


def test_spans_do_not_overlap_in_a_lane_and_the_wire_has_every_collective(mesh):
    report = training_report(mesh)
    for lane in ("compute", "wire"):
        spans = [s for s in report.spans if s.lane == lane]
        assert spans and all(s.end_ns > s.start_ns for s in spans)
        assert all(a.end_ns <= b.start_ns for a, b in zip(spans, spans[1:], strict=False))
    on_wire = [s.name for s in report.spans if s.lane == "wire"]
    assert on_wire == [c.kind for c in report.collectives]
    assert report.step_ns == max(s.end_ns for s in report.spans)
    assert report.to_dict()["step_ns"] == report.step_ns


def test_the_time_of_a_product_is_that_of_its_share():
    def time(devices):
        mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
        return spmdx.explain(placed(mesh, DATA, 64, 256) @ placed(mesh, WHOLE, 256, 128)).spans

    (half,), (eighth,) = time(2), time(8)
    assert (half.name, half.start_ns) == ("aten.mm", 0)
    assert 0 <= half.end_ns - eighth.end_ns * 4 < 4 < half.end_ns
    assert half.end_ns == 2 * 32 * 256 * 128 * 50 // 1000  # at 50 picoseconds a flop


def test_a_sum_waits_for_what_it_sums(mesh):
    spans = spmdx.explain(placed(mesh, COLUMN, 16, 32) @ placed(mesh, ROW, 32, 8)).spans
    product, total = spans
    assert (product.lane, total.lane, total.name) == ("compute", "wire", "all_reduce")
    assert total.start_ns == product.end_ns
    here = line(1, test_a_sum_waits_for_what_it_sums)
    assert product.source == total.source == here


@pytest.mark.parametrize(
    "ending, start", [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_a_time_line_is_drawn_as_a_picture(mesh, tmp_path, ending, start):
    path = tmp_path / f"step{ending}"
    training_report(mesh).timeline(path)
    assert path.read_bytes().startswith(start) and path.stat().st_size > 5000


def test_a_picture_names_lanes_kinds_times_and_bytes(mesh, tmp_path):
    report = training_report(mesh)
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        report.timeline(tmp_path / "step.svg")
    text = (tmp_path / "step.svg").read_text()
    moved = {c.kind for c in report.collectives}
    assert moved
    for part in ("compute", "wire", *moved, f"{report.wire_bytes:,} bytes", "data=4"):
        assert part in text


def test_a_time_line_is_a_chrome_trace(mesh, tmp_path):
    report = training_report(mesh)
    report.timeline(str(tmp_path / "step.json"))
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    points = [e for e in events if e["ph"] == "C"]
    spans = [
        SpanReport(
            lanes[e["tid"]],
            e["name"],
            round(e["ts"] * 1000),
            round((e["ts"] + e["dur"]) * 1000),
            span.held_bytes,
            e["args"]["source"],
        )
        for e, span in zip((e for e in events if e["ph"] == "X"), report.spans, strict=True)
    ]
    assert spans == report.spans
    curve = sorted((span.start_ns, span.held_bytes) for span in report.spans)
    assert sorted((round(e["ts"] * 1000), e["args"]["bytes"]) for e in points) == curve
    assert max(bytes for _, bytes in curve) == report.peak_bytes


def test_another_ending_is_refused(mesh):
    report = training_report(mesh)
    with pytest.raises(spmdx.ShardingError) as caught:
        report.timeline("step.gif")
    assert str(caught.value) == (
        f"{line(3, test_another_ending_is_refused)}: timeline: the file 'step.gif' ends in '.gif'. "
        'Expected one of .png, .svg, .pdf, .json. Write "step.png".'
    )


def test_a_report_without_work_is_not_drawn(mesh, tmp_path):
    report = spmdx.explain(placed(mesh, DATA, 8, 4).t())
    with pytest.raises(spmdx.ShardingError, match="no op that takes time. Expected .* Explain a"):
        report.timeline(tmp_path / "step.png")


# ---- why ----------------------------------------------------------------------------------------


def test_every_cut_value_says_whose_annotation_cut_it_and_where_that_was_written(mesh):
    report = training_report(mesh)
    for value in report.values:
        if "@" in value.sharding:
            assert value.provenance.startswith(("annotation", "layout of")), value
    source = inspect.getsourcelines(placed)[1] + 1
    inputs = [v for v in report.values if v.op.startswith("input") and "@" in v.sharding]
    assert {v.provenance for v in inputs} == {f"annotation of an input at {FILE}:{source}"}


def test_every_collective_has_a_cause_and_a_line(mesh):
    for collective in training_report(mesh).collectives:
        assert collective.cause and collective.source.startswith(FILE), collective


def test_a_value_and_its_collective_are_told_exactly(mesh):
    x, w = placed(mesh, COLUMN, 16, 32), placed(mesh, ROW, 32, 8)
    y = x @ w
    report = spmdx.explain(y)
    written = f"{FILE}:{inspect.getsourcelines(placed)[1] + 1}"
    product = line(2, test_a_value_and_its_collective_are_told_exactly)
    assert [(v.op, v.sharding, v.provenance, v.source) for v in report.values] == [
        ("input", "f32[16, 32@model]", f"annotation of an input at {written}", written),
        ("input", "f32[32@model, 8]", f"annotation of an input at {written}", written),
        (
            "aten.mm",
            "f32[16, 8]{partial sum: model}",
            "its operands are cut: f32[16, 32@model], f32[32@model, 8]",
            product,
        ),
    ]
    (total,) = report.collectives
    assert total.source == product
    assert total.cause == (
        "result of aten.mm f32[16, 8]{partial sum: model} as f32[16, 8], kept after the step"
    )
    # both inputs, the partial product and its sum are alive at the worst moment
    assert report.peak_bytes == (16 * 16 + 16 * 8 + 16 * 8 * 2) * 4


def test_a_cell_of_a_notebook_shows_tables(mesh):
    x = placed(mesh, ("data", None), 8, 4)
    report = spmdx.explain(x.exp().sum())
    changed = spmdx.explain_diff(report, spmdx.explain(x * 2))
    for drawn, head in ((report, "Collectives"), (changed, "collectives: ")):
        assert drawn._repr_html_().startswith("<pre ") and head in drawn._repr_html_()
        assert repr(drawn) == str(drawn) and head in str(drawn)
    assert "<summary>How " in report._repr_html_() and mesh._repr_html_().count("<td>") == 8
    table = spmdx.visualize_sharding(x, file=io.StringIO())
    assert "text/html" in table._repr_mimebundle_([], [])


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_mesh_of_one_device_says_that_nothing_is_cut(shape):
    one = spmdx.Mesh([0], shape, ("data", "model")[: len(shape)])
    x = placed(one, ("data", None), 8, 4)
    assert "nothing is cut" in str(spmdx.explain(x.exp().sum()))


def test_a_mesh_of_more_devices_does_not_say_so():
    long = spmdx.Mesh(range(8), (8, 1), ("data", "model"))
    x = placed(long, ("data", "model"), 8, 4)
    assert "nothing is cut" not in str(spmdx.explain(x.exp().sum()))
