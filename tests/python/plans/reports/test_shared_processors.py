# SPDX-License-Identifier: Apache-2.0
"""Devices that share processors: who waits leaves its share to the others."""

import dataclasses

import pytest
import spmdx
import torch
from messages import eight_devices
from spmdx.auto import Strategy

GLOO = spmdx.Topology.named("gloo")
RECORD_NS = 900


@pytest.fixture(autouse=True)
def in_process_behind():
    eight_devices()
    yield
    spmdx.set_topology("in-process")


def use(processors, record_ns=0, usage=0.5):
    level = dataclasses.replace(GLOO.levels[0], processor_usage=usage)
    shared = {"processors": processors, "record_ns": record_ns}
    spmdx.set_topology(dataclasses.replace(GLOO, levels=(level,), **shared))


class Net(torch.nn.Module):
    def __init__(self, layers=7):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(layers)])

    def forward(self, x):
        return self.layers(x).square().mean()


def training(strategy, rows=240):
    """The report of a step under the strategy."""
    with spmdx.plan_only():
        model = Net().to("spmdx")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mesh = strategy.mesh()
        strategy.mark(model, optimizer, mesh)
        batch = torch.ones(rows, 256).to("spmdx")
        parts = spmdx.auto.split(batch, strategy.microbatches)
        parts = [strategy.mark_batch(part, mesh) for part in parts]
        for part in parts:
            (model(part) / len(parts)).backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        return spmdx.explain()


def pipeline(pipe, data=1):
    """Stages of as many layers, but one."""
    cuts = tuple(f"layers.{7 * stage // pipe}" for stage in range(1, pipe))
    return Strategy(pipe=pipe, data=data, microbatches=6, schedule="1f1b", stages=cuts)


def told(strategy):
    return f"pipe {strategy.pipe}, data {strategy.data}"


def worked(report, pipe, usage=0.5):
    """Nanoseconds that a device works in the mean, by the spans; both ends of a send do."""
    total = 0.0
    for span in report.spans:
        share = 1 if span.rank is None else (2 if span.name == "send_recv" else 1) / pipe
        total += share * (usage if span.lane == "wire" else 1) * (span.end_ns - span.start_ns)
    return total


@pytest.mark.parametrize(
    "strategy", [pipeline(2), pipeline(3), pipeline(4), pipeline(4, 2)], ids=told
)
@pytest.mark.parametrize("processors", [1, 2, 3, 16])
def test_a_step_is_as_long_as_all_of_them_work(strategy, processors):
    use(0)
    own = training(strategy)
    end = max(span.end_ns for span in own.spans)
    assert own.step_ns == end
    use(processors)
    report = training(strategy)
    end = max(span.end_ns for span in report.spans)
    alone = min(1, processors / strategy.devices) * end
    assert report.step_ns == pytest.approx(max(worked(report, strategy.pipe), alone), rel=1e-4)
    assert report.step_ns <= own.step_ns


def test_the_bubble_of_a_pipeline_costs_nothing():
    steps = {}
    for processors in (0, 2):
        use(processors, usage=0.0)
        steps[processors] = [training(s).step_ns for s in (Strategy(data=4), pipeline(4))]
    (data, piped), (shared_data, shared_piped) = steps[0], steps[2]
    assert shared_piped < piped and shared_data <= data
    assert shared_piped / shared_data < piped / data


def test_each_process_records_what_others_run():
    found = []
    for record_ns in (0, RECORD_NS):
        use(2, record_ns)
        found.append(training(pipeline(4)))
    free, told = found
    ops = sum(span.rank is not None and span.lane != "wire" for span in told.spans)
    expected = RECORD_NS * ops * 3 / 4  # of four stages each runs its own
    assert told.step_ns - free.step_ns == pytest.approx(expected, abs=2)
    use(2, RECORD_NS)
    of_all = training(Strategy(data=4)).step_ns
    use(2)
    assert training(Strategy(data=4)).step_ns == of_all  # there every op is everyone's


def program():
    """A step of microbatches, its model and its optimizer."""
    model = Net().to("spmdx")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batches):
        for batch in batches:
            (model(batch) / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, model, optimizer


@pytest.mark.parametrize("processors", [0, 2])
def test_more_microbatches_are_predicted_from_few(processors):
    use(processors, RECORD_NS)
    many = dataclasses.replace(pipeline(4), microbatches=48)
    found = spmdx.auto.predict(many, *program(), torch.ones(960, 256))
    assert found.step_ns == pytest.approx(training(many, 960).step_ns, rel=0.05)


def test_estimates_have_what_each_process_records_of_others():
    use(2, 20 * RECORD_NS)
    batch = torch.ones(960, 256)
    listed = spmdx.auto.search(*program(), batch, devices=4, zero=[0]).candidates
    piped = [c for c in listed if not c.planned and c.strategy.pipe > 1 == c.strategy.model]
    assert len(piped) >= 8
    for candidate in piped[:: len(piped) // 8]:
        planned = spmdx.auto.predict(candidate.strategy, *program(), batch)
        assert candidate.step_ns == pytest.approx(planned.step_ns, rel=0.1), candidate.strategy
