# SPDX-License-Identifier: Apache-2.0
"""The load of devices: four times that make up the step, and who waits for whom."""

import pytest
import spmdx
import torch
from spmdx._base.cells import printed

SIZES = [2, 3, 4, 8]


def planned(make):
    """The report of what ``make`` records."""
    with spmdx.plan_only():
        kept = make()
        spmdx.mark_step()
        report = spmdx.explain()
        del kept
    for device in report.load.devices:
        assert device.step_ns == report.step_ns
        assert min(device.computing_ns, device.behind_ns, device.exposed_ns, device.idle_ns) >= 0
    return report


def product(group, rows):
    mesh = spmdx.Mesh(range(group), (group,), ("data",))
    x = spmdx.mark_sharding(torch.ones(rows, 512).to("spmdx"), mesh, ("data", None))
    return x @ torch.ones(512, 512).to("spmdx")


@pytest.mark.parametrize("group", SIZES)
def test_even_parts_load_devices_evenly(group):
    load = planned(lambda: product(group, 64 * group)).load
    assert [d.device for d in load.devices] == list(range(group))
    assert load.imbalance == 0 and load.waiting == 0


@pytest.mark.parametrize("group", SIZES)
def test_of_uneven_parts_the_last_device_waits_by_what_it_lacks(group):
    lacks = group - 1  # rows: as many as leave all others with 64
    report = planned(lambda: product(group, 64 * group - lacks))
    *full, last = report.load.devices
    assert all(d.behind_ns == 0 for d in full) and last.behind_ns > 0
    alone = planned(lambda: product(1, 64 - lacks)).step_ns
    assert last.computing_ns == pytest.approx(alone, abs=2)
    work = full[0].computing_ns * (group - 1) + last.computing_ns
    assert report.load.imbalance == pytest.approx(full[0].computing_ns * group / work - 1)
    assert report.load.slowest.device == 0


@pytest.mark.parametrize("group", SIZES)
def test_a_sum_that_nothing_hides_is_exposed(group):
    def summed():
        mesh = spmdx.Mesh(range(group), (group,), ("model",))
        x = spmdx.mark_sharding(torch.ones(64, 96 * group).to("spmdx"), mesh, (None, "model"))
        w = spmdx.mark_sharding(torch.ones(96 * group, 64).to("spmdx"), mesh, ("model", None))
        return spmdx.mark_sharding(x @ w, mesh, (None, None))

    report = planned(summed)
    wire = [s for s in report.spans if s.lane == "wire"]
    assert [s.name for s in wire] == ["all_reduce"]
    for device in report.load.devices:
        assert device.exposed_ns == wire[0].end_ns - wire[0].start_ns
        assert device.idle_ns == 0


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("microbatches", [4, 8])
def test_the_bubble_of_a_pipeline_is_what_devices_are_idle_for(stages, microbatches):
    # Of 1F1B (stages - 1) / (microbatches + stages - 1) of the step, by D. Narayanan et al.,
    # arXiv:2104.04473, §2.2, where a stage sends gradients when it is through with its backward
    # pass; two thirds of it where it sends them ahead of its weights' gradients. Links are free.
    spmdx.set_topology(spmdx.Topology("at once", [spmdx.topology.Level(0, 0, 0, 0)]))
    try:
        report = planned(lambda: pipelined(stages, microbatches))
    finally:
        spmdx.set_topology("in-process")
    bubble, sent_ahead = stages - 1, (stages - 1) * 2 / 3
    most, least = (b / (microbatches + b) for b in (bubble, sent_ahead))
    assert 0.99 * least < report.load.waiting < 1.01 * most
    for rank, device in enumerate(report.load.devices):
        lane = [s for s in report.spans if s.lane == "compute" and s.rank in (None, rank)]
        assert device.computing_ns == sum(s.end_ns - s.start_ns for s in lane)
        assert device.idle_ns > 0 and device.exposed_ns == device.behind_ns == 0


def pipelined(stages, microbatches):
    mesh = spmdx.Mesh(range(stages), (stages,), ("pipe",))
    layers = [torch.nn.Linear(4096, 4096, bias=False) for _ in range(2 * stages)]
    model = torch.nn.Sequential(*layers).to("spmdx")
    spmdx.nn.pipeline(model, mesh, "pipe", [str(2 * s) for s in range(1, stages)], "1f1b")
    kept = []  # gradients of inputs, too, so that stages do equally much
    for _ in range(microbatches):
        x = torch.ones(4096, 4096, device="spmdx", requires_grad=True)
        loss = model(x).sum()
        loss.backward()
        kept += [loss.detach(), x.grad]
    return model, kept


def test_a_report_shows_devices_that_are_alike_in_one_row():
    load = planned(lambda: product(4, 253)).load
    shown = printed(load)
    assert "Load, in ms of a step" in shown
    assert "0-2" in shown and "imbalance" not in shown
    assert "the slowest computes 1.2% longer than the average" in shown
