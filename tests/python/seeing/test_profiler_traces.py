# SPDX-License-Identifier: Apache-2.0
"""torch.profiler's traces hold every step, plan, op and collective, whichever thread ran it."""

import collections
import json
import os
import re
import threading

import pytest
import spmdx
import torch
from torch.profiler import ProfilerActivity, profile

FILE = os.path.basename(__file__)
COLLECTIVE = re.compile(
    r"spmdx\.(?P<kind>\w+) axes=(?P<axes>\S*) bytes=(?P<bytes>\d+)(?: at (\S+))?"
)


@pytest.fixture(scope="module", autouse=True)
def devices():
    if spmdx.runtime.global_runtime_device_count() < 8:
        spmdx.runtime.set_device_count(8)


def trainer(size, rows=24):
    """A step of a network whose batch and weights are cut, and the tensors that it changes."""
    torch.manual_seed(0)
    mesh = spmdx.Mesh(range(size), (size,), ("data",))
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 5))
    model = model.to("spmdx")
    spmdx.fully_shard(model[0], mesh, axis="data")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = spmdx.mark_sharding(torch.randn(rows, 6).to("spmdx"), mesh, ("data", None))

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        spmdx.mark_step()

    for _ in range(3):
        step()
    spmdx.sync(wait=True)
    return step, model


def events_of(profiled, folder):
    path = folder / "trace.json"
    profiled.export_chrome_trace(str(path))
    return [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]


def collectives_in(events):
    """How often each (kind, axes, bytes, line) is in the trace."""
    found = [COLLECTIVE.fullmatch(event["name"]) for event in events]
    return collections.Counter(
        (m["kind"], tuple(m["axes"].split(",")), int(m["bytes"]), m[4] or "") for m in found if m
    )


def collectives_of(report, steps):
    counted = collections.Counter()
    for c in report.collectives:
        counted[c.kind, c.axes, c.bytes, c.source] += c.count * steps
    return counted


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_every_collective_is_in_the_trace_once_a_step(size, tmp_path):
    step, _ = trainer(size, rows=25)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(3):
            step()
    report = spmdx.explain()
    assert report.collectives
    assert any(c.source.startswith(FILE) for c in report.collectives)
    events = events_of(profiled, tmp_path)
    assert collectives_in(events) == collectives_of(report, 3)


def test_what_moves_no_bytes_is_no_collective(tmp_path):
    mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    model = model.to("spmdx")
    spmdx.mark_sharding(model[0].weight, mesh, ("model", None))
    spmdx.mark_sharding(model[2].weight, mesh, (None, "model"))
    x = spmdx.mark_sharding(torch.randn(256, 64).to("spmdx"), mesh, ("data", None))
    model(x).sum().backward()  # makes the gradients, so that later steps have the same plan

    def step():
        model(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        spmdx.mark_step()

    step()
    spmdx.sync(wait=True)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    events = events_of(profiled, tmp_path)
    assert "spmdx.comm.slice" in spmdx.debug.dump()
    assert [e["name"] for e in events if e["name"].startswith("spmdx.slice at ")]
    assert len(spmdx.explain().collectives) >= 3
    assert collectives_in(events) == collectives_of(spmdx.explain(), 1)


def test_ranges_lie_within_their_step_and_on_its_thread(tmp_path):
    step, _ = trainer(4)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
        step()
    events = events_of(profiled, tmp_path)
    steps = [e for e in events if e["name"].startswith("spmdx.step#")]
    assert len(steps) == 2
    numbers = [int(e["name"].split("#")[1]) for e in steps]
    assert numbers[1] == numbers[0] + 1
    for event in events:
        if COLLECTIVE.fullmatch(event["name"]) or event["name"].startswith("aten.mm"):
            around = [s for s in steps if s["ts"] <= event["ts"] + 1e-3]
            assert around and event["tid"] == around[-1]["tid"], event
            assert event["ts"] + event["dur"] <= around[-1]["ts"] + around[-1]["dur"] + 1e-3
    kernels = [e for e in events if e["name"] == "aten::mm"]
    assert len(kernels) >= 2 * 4  # PyTorch's own, of each shard


def test_a_plan_is_a_range_on_the_thread_that_makes_it(tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        x = torch.ones(7, 13).to("spmdx")
        y = (x @ x.t()).sin().cos().sum()
        assert y.item() == pytest.approx(49 * torch.tensor(13.0).sin().cos().item(), rel=1e-5)
    plans = [e for e in events_of(profiled, tmp_path) if e["name"].startswith("spmdx.plan of ")]
    assert plans


def test_ops_name_the_users_line(tmp_path):
    step, _ = trainer(2)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    names = {event["name"] for event in events_of(profiled, tmp_path)}
    assert any(re.fullmatch(rf"aten\.\S+ at {FILE}:\d+", name) for name in names)


def test_arguments_are_there_where_shapes_are_asked_for(tmp_path):
    step, _ = trainer(2)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        step()
    events = events_of(profiled, tmp_path)
    told = [e["args"] for e in events if COLLECTIVE.fullmatch(e["name"])]
    assert told
    for event in events:
        if found := COLLECTIVE.fullmatch(event["name"]):
            assert int(event["args"]["bytes"]) == int(found["bytes"])
            assert str(event["args"]["axes"]).strip('"') == found["axes"]


def test_a_program_that_is_profiled_computes_the_same():
    step, model = trainer(3)
    plain_step, plain = trainer(3)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, profile_memory=True):
        for _ in range(3):
            step()
    for _ in range(3):
        plain_step()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a.detach().cpu(), b.detach().cpu())


def test_profiles_begin_and_end_while_steps_run(tmp_path):
    step, _ = trainer(4)
    for _ in range(15):
        step()  # runs on while the profile begins
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            step()
    events = events_of(profiled, tmp_path)
    inside = [e for e in events if e["name"].startswith("spmdx.step#")]
    assert len(inside) == 1
    assert collectives_in(events) == collectives_of(spmdx.explain(), 1)


def test_another_thread_runs_steps_while_a_profile_ends(tmp_path):
    step, _ = trainer(2)
    stop = threading.Event()
    ran = []

    def go_on():
        while not stop.is_set():
            step()
            ran.append(1)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for _ in range(5):
            with profile(activities=[ProfilerActivity.CPU]) as profiled:
                before = len(ran)
                while len(ran) < before + 3:
                    stop.wait(0.001)
            assert collectives_in(events_of(profiled, tmp_path))
    finally:
        stop.set()
        thread.join()
    spmdx.sync(wait=True)


def test_a_schedule_of_profiles_sees_its_steps(tmp_path):
    step, _ = trainer(2)
    traces = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=lambda p: traces.append(events_of(p, tmp_path)),
    ) as profiled:
        for _ in range(8):
            step()
            profiled.step()
    assert len(traces) == 2
    for events in traces:
        assert collectives_in(events) == collectives_of(spmdx.explain(), 2)


def test_nobody_watches_when_no_profile_is_on(tmp_path):
    step, _ = trainer(2)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        pass
    step()
    spmdx.sync(wait=True)
    assert not [e for e in events_of(profiled, tmp_path) if "spmdx." in e["name"]]
