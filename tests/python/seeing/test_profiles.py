# SPDX-License-Identifier: Apache-2.0
"""spmdx.profile: what was measured, beside what was predicted."""

import collections
import json

import pytest
import spmdx
import torch
from messages import message_of

KINDS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"}


@pytest.fixture(scope="module", autouse=True)
def devices():
    if spmdx.runtime.global_runtime_device_count() < 8:
        spmdx.runtime.set_device_count(8)


def trainer(shape, names):
    torch.manual_seed(0)
    size = 1
    for n in shape:
        size *= n
    mesh = spmdx.Mesh(range(size), shape, names)
    model = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Linear(48, 5))
    model = model.to("spmdx")
    spmdx.mark_sharding(model[0].weight, mesh, (names[-1], None))
    spmdx.mark_sharding(model[2].weight, mesh, (None, names[-1]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = spmdx.mark_sharding(torch.randn(25, 24).to("spmdx"), mesh, (names[0], None))

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        spmdx.mark_step()

    return step, model


@pytest.mark.parametrize(
    "shape, names", [((3,), ("a",)), ((2, 2), ("a", "b")), ((4, 2), ("a", "b"))]
)
def test_every_op_and_collective_is_measured_and_predicted(shape, names):
    step, _ = trainer(shape, names)
    profile = spmdx.profile(step, steps=3)
    report = spmdx.explain()
    measured = collections.Counter(
        (op.name, op.axes, op.bytes, op.source) for op in profile.ops if op.lane == "wire"
    )
    expected = collections.Counter((c.kind, c.axes, c.bytes, c.source) for c in report.collectives)
    assert expected and measured == expected
    assert profile.mesh == report.mesh
    assert profile.predicted_ns == report.step_ns
    assert sorted(
        (op.predicted_start_ns, op.predicted_end_ns) for op in profile.ops if op.predicted_ns
    ) == sorted((span.start_ns, span.end_ns) for span in report.spans)
    assert profile.plans_made == 0
    assert profile.devices == torch.Size(shape).numel()


def test_times_are_in_order_and_add_up():
    step, _ = trainer((8,), ("a",))
    profile = spmdx.profile(step, steps=5)
    assert 0 < profile.host_ns <= profile.step_ns
    assert 0 < profile.device_ns <= profile.process_ns
    for op in profile.ops:
        assert 0 <= op.start_ns <= op.end_ns
        assert 0 < op.device_ns <= op.process_ns and op.shards >= 1
        if op.shards == 1 and op.lane == "compute":
            assert op.device_ns >= 0.5 * op.process_ns
    products = [op for op in profile.ops if op.name in ("aten.mm", "aten.addmm")]
    assert products and all(op.shards == 8 for op in products)
    kinds = profile.by_kind()
    assert sum(kind.count for kind in kinds) == len(profile.ops)
    assert sum(kind.process_ns for kind in kinds) == sum(op.process_ns for op in profile.ops)


@pytest.mark.on_the_cpu("the host only starts it there")
def test_an_op_that_takes_long_is_measured_long():
    small, large = torch.ones(8, 8).to("spmdx"), torch.ones(700, 700).to("spmdx")
    times = {}
    for name, x in (("small", small), ("large", large)):
        profile = spmdx.profile(lambda x=x: (x @ x).sum().item())
        times[name] = next(op for op in profile.ops if op.name == "aten.mm").device_ns
    assert times["large"] > 10 * times["small"]


def test_a_step_that_is_measured_trains_as_ever():
    step, model = trainer((4,), ("a",))
    plain_step, plain = trainer((4,), ("a",))
    spmdx.profile(step, steps=2, warmup=1)
    for _ in range(1 + 2 * 2):
        plain_step()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a.detach().cpu(), b.detach().cpu())


def test_a_step_of_several_programs():
    x = torch.ones(16, 16).to("spmdx")

    def step():
        y = x.exp()
        spmdx.mark_step()
        return (y @ y).sum().item()

    profile = spmdx.profile(step, steps=2)
    assert [op.name for op in profile.ops if op.name in ("aten.exp", "aten.mm")] == [
        "aten.exp",
        "aten.mm",
    ]
    exp, product = (next(o for o in profile.ops if o.name == n) for n in ("aten.exp", "aten.mm"))
    assert exp.predicted_end_ns <= product.predicted_start_ns
    assert exp.end_ns <= product.start_ns


def test_a_profile_prints_draws_and_is_a_trace(tmp_path):
    step, _ = trainer((2,), ("a",))
    profile = spmdx.profile(step, steps=2)
    text = str(profile)
    for word in ("predicted", "one device", "this process", "aten.addmm", "all_reduce"):
        assert word in text
    assert "<table" not in text and "addmm" in profile._repr_html_()
    assert json.loads(json.dumps(profile.to_dict()))["step_ns"] == profile.step_ns
    for name in ("step.png", "step.svg", "step.json"):
        profile.timeline(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 500
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in spans} == {0, 1}
    moved = [e for e in spans if e["pid"] == 1 and e["tid"] == 1]
    assert len(moved) == len(spmdx.explain().collectives)
    assert all(e["name"] in KINDS and e["args"]["bytes"] > 0 for e in moved)
    assert all(e["args"]["axes"] == ["a"] for e in moved)
    drawn = profile.timeline()
    assert [axes.get_title(loc="left").split(",")[0] for axes in drawn.axes[:2]] == [
        "predicted",
        "measured",
    ]
    with pytest.raises(spmdx.ShardingError, match="ends in '.txt'. Expected one of .png"):
        profile.timeline(tmp_path / "step.txt")


def test_a_profile_and_torchs_profiler_at_once(tmp_path):
    step, _ = trainer((2,), ("a",))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as outer:
        profile = spmdx.profile(step, steps=2, warmup=0)
    assert [op for op in profile.ops if op.lane == "wire"]
    names = [event.name for event in outer.events()]
    steps = [name for name in names if name.startswith("spmdx.step#")]
    assert len(steps) >= 4


def test_what_a_step_returns_is_computed_though_nothing_reads_it():
    x = torch.ones(6, 4).to("spmdx")
    profile = spmdx.profile(lambda: x.exp() @ x.t(), steps=2)
    assert [kind.name for kind in profile.by_kind() if kind.name == "aten.mm"] == ["aten.mm"]
    assert profile.plans_made == 0


WRONG = {
    "no function": (lambda: spmdx.profile(3), "step is 3. Expected a function"),
    "no steps": (
        lambda: spmdx.profile(print, steps=0),
        "steps is 0. Expected an int of at least 1",
    ),
    "warmup": (lambda: spmdx.profile(print, warmup=True), "warmup is True. Expected an int"),
    "nothing": (lambda: spmdx.profile(lambda: None), "the step ran nothing on device 'spmdx'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_measured_is_refused(name):
    call, words = WRONG[name]
    said = message_of(spmdx.ShardingError, call)
    assert "profile: " in said and words in said


def test_steps_that_differ_are_refused_and_later_ones_are_measured():
    sizes = iter(range(3, 100))
    with pytest.raises(spmdx.ShardingError, match="ran other programs from call to call"):
        spmdx.profile(lambda: torch.ones(next(sizes)).to("spmdx").exp().sum().item())
    assert spmdx.profile(lambda: torch.ones(3).to("spmdx").exp().sum().item()).ops


def test_an_error_of_the_step_comes_out_and_leaves_nothing_on():
    def step():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        spmdx.profile(step)
    assert spmdx._C.take_measured()["ranges"] == []


def test_nothing_is_measured_where_steps_are_only_planned():
    with spmdx.plan_only(), pytest.raises(spmdx.ShardingError, match="nothing runs within"):
        spmdx.profile(lambda: None)
