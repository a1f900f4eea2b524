# SPDX-License-Identifier: Apache-2.0
"""What exchanges take of the processors that compute beside them."""

import dataclasses

import pytest
import spmdx
import torch
from messages import eight_devices
from spmdx.auto import Strategy

GLOO = spmdx.Topology.named("gloo")


@pytest.fixture(autouse=True)
def in_process_behind():
    eight_devices()
    yield
    spmdx.set_topology("in-process")


def use(usage):
    level = dataclasses.replace(GLOO.levels[0], processor_usage=usage)
    spmdx.set_topology(dataclasses.replace(GLOO, levels=(level,)))


def sum_beside_products(products=40):
    """The report of a step in which a sum over devices goes on beside products."""
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    with spmdx.plan_only():
        rows = spmdx.mark_sharding(torch.ones(64, 4096).to("spmdx"), mesh, ("data", None))
        total = spmdx.mark_sharding(rows.sum(0), mesh, (None,))
        value = spmdx.mark_sharding(torch.ones(512, 256).to("spmdx"), mesh, ("data", None))
        weight = torch.ones(256, 256).to("spmdx")
        for _ in range(products):
            value = value @ weight
        kept = total * 2, value
        spmdx.mark_step()
        del kept
        return spmdx.explain()


def lanes(report):
    wire = sum(s.end_ns - s.start_ns for s in report.spans if s.lane == "wire")
    return wire, sum(s.end_ns - s.start_ns for s in report.spans if s.lane != "wire")


@pytest.mark.parametrize("usage", [0.0, 0.5, 1.0])
def test_kernels_wait_as_long_as_links_need_the_processor(usage):
    use(usage)
    report = sum_beside_products()
    wire, computed = lanes(report)
    assert 0 < wire < computed / 2  # it is hidden where links carry by themselves
    assert report.step_ns == pytest.approx(computed + usage * wire, abs=2)


def test_what_nothing_runs_beside_takes_no_longer():
    steps = []
    for usage in (0.0, 1.0):
        use(usage)
        steps.append(sum_beside_products(products=0).step_ns)
    assert steps[0] == steps[1] > 0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)])

    def forward(self, x):
        return self.layers(x).square().mean()


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(data=4),
        Strategy(data=4, zero=3),
        Strategy(pipe=2, data=2, microbatches=4, schedule="1f1b"),
    ],
    ids=["data", "zero 3", "pipeline"],
)
def test_estimates_and_predictions_know_it(strategy):
    model = Net().to("spmdx")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batches):
        for batch in batches:
            (model(batch) / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    taken = []
    for usage in (0.0, 1.0):
        use(usage)
        batch = torch.ones(256, 1024)
        predicted = spmdx.auto.predict(strategy, step, model, optimizer, batch)
        taken.append(predicted.step_ns)
    assert taken[0] < taken[1] < 3 * taken[0]
