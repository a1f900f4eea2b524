# SPDX-License-Identifier: Apache-2.0
"""Steps whose parts run where they end first: they compute what plain PyTorch computes."""

import json

import pytest
import spmdx
import torch
from small_training import OPTIMIZERS, on, require_equal, training
from spmdx.errors import ShardingError


def slow(rate, name="slow"):
    """A device beside which sends take no time, so that a step is spread over many."""
    return spmdx.Hardware(name, {"f32": rate}, rate)


def set_kinds(rates):
    """Devices of these rates, in operations a second, each of them a kind."""
    names = [f"cpu@{i}" for i in range(len(rates))]
    told = {name: slow(rate, name) for name, rate in zip(names, rates, strict=True)}
    spmdx.runtime.set_devices(names, hardware=told)


def mesh_of(kinds):
    """All eight devices: the first axis is one of kinds, the second cuts tensors."""
    return spmdx.Mesh(range(8), (kinds, 8 // kinds), ("kind", "data"))


RATES = {2: [1e6, 2e6], 4: [1e6, 3e6, 2e6, 1e6], 8: [1e6, 1e6, 2e6, 3e6, 1e6, 5e6, 2e6, 1e6]}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("marks_parameters", [False, True])
@pytest.mark.parametrize("kinds", RATES)
def test_placed_training_is_that_of_pytorch(kinds, marks_parameters, optimizer):
    chosen = OPTIMIZERS[optimizer]
    expected = training(lambda *given: given, chosen)
    names = [f"cpu@{i * (8 // kinds)}" for i in range(kinds) for _ in range(8 // kinds)]
    told = {name: slow(RATES[kinds][i], name) for i, name in enumerate(dict.fromkeys(names))}
    spmdx.runtime.set_devices(names, hardware=told)
    mesh = mesh_of(kinds)
    spmdx.auto.place(mesh, "kind")
    require_equal(training(on(mesh, marks_parameters), chosen), expected)
    placement = spmdx.explain().placement
    assert len({segment.coordinate for segment in placement.segments}) > 1
    assert placement.sends and placement.least_ns <= placement.step_ns
    assert placement.step_ns < min(ns for ns in placement.alone_ns if ns is not None)


def test_microbatches_go_to_devices_in_the_ratio_of_their_speed():
    rates = [1e6, 2e6, 4e6]
    names = [f"cpu@{i}" for i in range(3)] + ["cpu@0"] * 5
    told = {f"cpu@{i}": slow(rate, f"cpu@{i}") for i, rate in enumerate(rates)}
    spmdx.runtime.set_devices(names, hardware=told)
    mesh = spmdx.Mesh(range(3), (3,), ("kind",))
    spmdx.auto.place(mesh)
    torch.manual_seed(0)
    w, x = torch.randn(8, 8).double(), torch.randn(140, 8).double()
    parts = [(part @ w).relu().sum() for part in x.chunk(35)]
    lazy = spmdx.mark_sharding(w.to("spmdx"), mesh, (None, None))
    found = [(part.to("spmdx") @ lazy).relu().sum() for part in x.chunk(35)]
    spmdx.mark_step()
    assert [f.item() for f in found] == pytest.approx([p.item() for p in parts], rel=1e-12)
    segments = spmdx.explain().placement.segments
    products = [s for s in segments if s.op == "aten.mm"]
    counts = [sum(s.coordinate == at for s in products) for at in range(3)]
    assert sum(counts) == 35
    for count, share in zip(counts, (5, 10, 20), strict=True):
        assert abs(count - share) <= max(1, share // 10)


def test_ops_run_where_they_can():
    """The simulated FPGA has no sort; nothing of it is placed there."""
    spmdx.runtime.set_devices(["cpu@cpu"] * 4 + ["hls:sim"] * 4)
    mesh = mesh_of(2)
    spmdx.auto.place(mesh, "kind")
    x = torch.randn(16, 8)
    lazy = spmdx.mark_sharding(x.to("spmdx"), mesh, ("data", None))
    values, order = lazy.sort(dim=1)
    spmdx.mark_step()
    torch.testing.assert_close(values.cpu(), x.sort(dim=1)[0], rtol=0, atol=0)
    torch.testing.assert_close(order.cpu(), x.sort(dim=1)[1], rtol=0, atol=0)
    placement = spmdx.explain().placement
    assert placement.alone_ns[1] is None
    assert {s.kind for s in placement.segments} == {"cpu@cpu"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtypes_are_computed_where_they_are_taken(dtype):
    """The simulated FPGA is the faster one, and takes f32 alone."""
    spmdx.runtime.set_devices(["cpu@cpu"] * 4 + ["hls:sim"] * 4, compile_now=True)
    mesh = mesh_of(2)
    spmdx.auto.place(mesh, "kind")
    x = torch.randn(512, 16).to(dtype)
    lazy = spmdx.mark_sharding(x.to("spmdx"), mesh, ("data", None))
    made = (lazy @ lazy.T).relu() * 2 + 1
    spmdx.mark_step()
    torch.testing.assert_close(made.cpu(), (x @ x.T).relu() * 2 + 1)
    report = spmdx.explain()
    taken = dtype == torch.float32
    assert (report.placement.alone_ns[1] is not None) == taken
    assert {s.kind for s in report.placement.segments} == {"hls:sim" if taken else "cpu@cpu"}
    assert bool(report.segments.segments) == taken


def test_a_kind_alone_is_sent_what_lies_elsewhere():
    """Tensors that earlier steps have left on several devices."""
    set_kinds([1e6, 3e6, 2e6, 1e6, 1e6, 1e6, 1e6, 1e6])
    mesh = spmdx.Mesh(range(3), (3,), ("kind",))
    spmdx.auto.place(mesh, "kind")
    x = spmdx.mark_sharding(torch.ones(16, 16).to("spmdx"), mesh, (None, None))
    made = [(x @ x).tanh() * k for k in range(6)]
    spmdx.mark_step()
    assert len({str(spmdx.get_sharding(y)) for y in made}) > 1
    for y in made[1:]:
        total = made[0] @ y
        spmdx.mark_step()
        placement = spmdx.explain().placement
        assert placement.least_ns <= placement.step_ns <= min(placement.alone_ns)
    del total


def test_timelines_have_a_lane_for_each_kind(tmp_path):
    set_kinds([1e6, 2e6, 1e6, 2e6, 1e6, 1e6, 1e6, 1e6])
    mesh = mesh_of(8)
    spmdx.auto.place(mesh, "kind")
    x = spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mesh, (None, None))
    total = (x @ x).sum() + (x.exp() @ x).sum()
    spmdx.mark_step()
    assert total.item() == pytest.approx(64 + 16 * 4 * 2.718281828, rel=1e-5)
    placement = spmdx.explain().placement
    placement.timeline(tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    assert len(bars) == len(placement.segments)
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {
        f"{kind} ({at})" for at, kind in enumerate(placement.kinds)
    }
    placement.timeline(tmp_path / "step.png")
    assert (tmp_path / "step.png").stat().st_size > 1000
    assert "placed over 8 kinds" in str(spmdx.explain())


def refused(*expected):
    return pytest.raises(ShardingError, match="(?s)" + ".*".join(expected))


def test_errors_say_what_to_do():
    mesh = mesh_of(2)
    with refused("of one kind", "set_devices"):
        spmdx.auto.place(mesh, "kind")
    with refused("'xla:gpu'", "Expected one of cpu", "xla:cpu, xla:tpu"):
        spmdx.runtime.set_devices(["xla:gpu"] * 8)
    with refused("'cpu@fast'", "hardware="):
        spmdx.runtime.set_devices(["cpu@fast"] * 8)
    with refused("'cpu@9'", "no device is"):
        spmdx.runtime.set_devices(["cpu"] * 8, hardware={"cpu@9": "v100-32"})
    with refused("list of names"):
        spmdx.runtime.set_devices("cpu")
    with refused("came too late"):
        spmdx.runtime.set_devices(["cpu"] * 3)
    spmdx.runtime.set_devices(["cpu"] * 4 + ["cpu@v100-32"] * 4)
    with refused("'pipe'", "kind, data"):
        spmdx.auto.place(mesh, "pipe")
    with refused("data=0", "cpu and cpu@v100-32"):
        spmdx.auto.place(mesh, "data")
    spmdx.auto.place(mesh)  # the only axis along which they differ
    mixed = spmdx.Mesh([0, 4, 1, 5, 2, 6, 3, 7], (2, 4), ("kind", "data"))
    with refused("kind=0", "cpu and cpu@v100-32"):
        spmdx.auto.place(mixed, "kind")
    x = spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mixed, ("data", None))
    y = x + 1
    with refused("kind=0", "cpu and cpu@v100-32"):
        spmdx.mark_step()
    del x, y
    spmdx.runtime.set_devices([])


def test_an_axis_of_kinds_cuts_nothing():
    spmdx.runtime.set_devices(["cpu"] * 4 + ["cpu@v100-32"] * 4)
    mesh = mesh_of(2)
    spmdx.auto.place(mesh)
    x = spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mesh, ("kind", None))
    y = x + 1
    with refused("axis 'kind'", "cuts"):
        spmdx.mark_step()
    spmdx.auto.place(None)
    del x, y


def spread(mesh):
    """A tensor and its numbers; it lies on one of the places."""
    spmdx.auto.place(mesh, "kind")
    x = torch.randn(16, 8)
    lazy = spmdx.mark_sharding(x.to("spmdx"), mesh, ("data", None))
    made = (lazy @ lazy.T).relu() + (lazy.exp() @ lazy.T)
    spmdx.mark_step()
    return made, (x @ x.T).relu() + (x.exp() @ x.T)


def test_a_step_that_computes_nothing_only_moves():
    mesh = two_speeds()
    made, expected = spread(mesh)
    for spec in (("data", None), (None, "data"), (None, None)):
        spmdx.mark_sharding(made, mesh, spec)
        spmdx.mark_step()
        assert spmdx.get_sharding(made).spec == spmdx.PartitionSpec(*spec)
        torch.testing.assert_close(made.cpu(), expected)
    uploaded = spmdx.mark_stage(expected.to("spmdx"), mesh, 1, "kind")
    spmdx.mark_step()
    torch.testing.assert_close(uploaded.cpu(), expected)
    with spmdx.plan_only():
        spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mesh, (None, None))
        spmdx.mark_step()


def two_speeds():
    told = {"cpu@slow": slow(1e6, "cpu@slow"), "cpu@fast": slow(2e6, "cpu@fast")}
    spmdx.runtime.set_devices(["cpu@slow"] * 4 + ["cpu@fast"] * 4, hardware=told)
    return mesh_of(2)


def test_stages_beyond_the_axis_are_its_coordinates_again():
    mesh = two_speeds()
    spmdx.auto.place(mesh, "kind")
    x = torch.randn(8, 8)
    lazy = spmdx.mark_stage(x.to("spmdx"), mesh, 3, "kind")
    other = spmdx.mark_sharding(x.to("spmdx"), mesh, ("data", None))
    made = lazy @ other + lazy.exp()
    spmdx.mark_step()
    torch.testing.assert_close(made.cpu(), x @ x + x.exp())


def test_a_pipeline_is_refused_beside_kinds():
    mesh = two_speeds()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).to("spmdx")
    spmdx.nn.pipeline(model, mesh, axis="kind", cuts=["1"])
    spmdx.auto.place(mesh, "kind")
    loss = model(torch.ones(4, 8).to("spmdx")).sum()
    with refused("pipeline", "auto.place"):
        spmdx.mark_step()
    spmdx.auto.place(None)
    assert loss.isfinite().item()


def test_optimizer_state_on_hosts_stays_there():
    mesh = two_speeds()

    def states(place):
        torch.manual_seed(0)
        model, x = torch.nn.Linear(16, 16), torch.randn(8, 16)
        model, x, optimizer = place(model, x)
        for _ in range(3):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if x.device.type == "spmdx":
                spmdx.mark_step()
        return [p.detach().cpu() for p in model.parameters()]

    def sharded(model, x):
        spmdx.auto.place(mesh, "kind")
        model = model.to("spmdx")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        spmdx.nn.zero(model, optimizer, mesh=mesh, axis="data", stage=1, offload=True)
        return model, spmdx.mark_sharding(x.to("spmdx"), mesh, ("data", None)), optimizer

    expected = states(lambda m, x: (m, x, torch.optim.AdamW(m.parameters(), lr=0.1)))
    for mine, theirs in zip(states(sharded), expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_sharding_tells_the_place_of_what_is_marked():
    mesh = two_speeds()
    made, _ = spread(mesh)
    spmdx.mark_sharding(made, mesh, ("data", None))
    spmdx.mark_step()
    assert "kind=" in str(spmdx.get_sharding(made))
    assert len(made.local_shards) == 4


def test_more_bad_input():
    with refused("Expected a dict"):
        spmdx.runtime.set_devices(["cpu"] * 8, hardware=["cpu"])
    for kinds in (None, 8, ["cpu", 3]):
        with refused("Expected a list of names"):
            spmdx.runtime.set_devices(kinds)
    for kind in (":cpu", "cpu@"):
        with refused("no kind of device"):
            spmdx.runtime.set_devices([kind] * 8)
    with refused("the mesh is a str"):
        spmdx.auto.place("kind")
    spmdx.runtime.set_devices(["cpu"] * 8)
    with refused("set_device_count", "8 devices"):
        spmdx.runtime.set_device_count(4)


def test_moves_to_other_meshes_with_the_axis_end():
    """What lies on another mesh is brought to a place of this one, once."""
    mesh = two_speeds()
    made, expected = spread(mesh)
    other = spmdx.Mesh([0, 4], (2,), ("kind",))
    doubled = spmdx.mark_sharding(made * 2, mesh, ("kind", None))
    with refused("axis 'kind'", "cuts"):
        spmdx.mark_step()
    del doubled
    for _ in range(2):
        spmdx.mark_sharding(made, other, (None, None))
        spmdx.mark_step()
        torch.testing.assert_close(made.cpu(), expected)
        assert "kind=" in str(spmdx.get_sharding(made))
