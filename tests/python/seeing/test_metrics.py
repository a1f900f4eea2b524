# SPDX-License-Identifier: Apache-2.0
"""spmdx.metrics: values of steps are read behind them, in order, and none waits for them."""

import time

import numpy
import pytest
import spmdx
import torch
from messages import message_of
from spmdx.metrics import Metrics, Record


@pytest.fixture(scope="module", autouse=True)
def devices():
    if spmdx.runtime.global_runtime_device_count() < 8:
        spmdx.runtime.set_device_count(8)


def train(device, mesh=None, steps=6, log=lambda **values: None):
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3).to(device)
    x = torch.randn(11, 6).to(device)
    if mesh is not None:
        spmdx.mark_sharding(model.weight, mesh, ("x", None))
        spmdx.mark_sharding(x, mesh, ("x", None))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log(loss=loss, norm=norm, lr=0.1)
        if mesh is not None:
            spmdx.mark_step()


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_losses_and_norms_are_those_of_one_device(size):
    plain, found = [], Metrics()
    train(
        "cpu",
        log=lambda **v: plain.append(
            {name: float(torch.as_tensor(value).detach()) for name, value in v.items()}
        ),
    )
    train("spmdx", spmdx.Mesh(range(size), (size,), ("x",)), log=found.log)
    records = found.close()
    assert [record.step for record in records] == list(range(6))
    for record, expected in zip(records, plain, strict=True):
        assert record.values == pytest.approx(expected, rel=1e-5)


def test_no_step_is_cut_and_no_plan_is_added():
    mesh = spmdx.Mesh(range(4), (4,), ("x",))
    train("spmdx", mesh)
    spmdx.sync(wait=True)
    counts = []
    for log in (lambda **v: None, Metrics().log, Metrics().log):
        spmdx.debug.reset_counters()
        train("spmdx", mesh, log=log)
        spmdx.sync(wait=True)
        counted = spmdx.debug.counters()
        counts.append(tuple(counted[n] for n in ("steps", "implicit_syncs", "ops_recorded")))
    assert counts[0] == counts[1] == counts[2]


def slow_op(gate):
    """A number on the device that is there when the gate is open."""
    library = torch.library.Library("seeing", "FRAGMENT")
    library.define("slow(Tensor x) -> Tensor")

    def run(x):
        assert gate.wait(30)
        return x + 1

    library.impl("slow", run, "CPU")
    library.impl("slow", lambda x: torch.empty_like(x), "Meta")
    return library


def test_a_call_returns_before_the_value_is_there():
    import threading

    gate = threading.Event()
    library = slow_op(gate)
    metrics = Metrics()
    x = torch.ones(()).to("spmdx")
    loss = torch.ops.seeing.slow(x)
    spmdx.mark_step()
    metrics.log(loss=loss)
    metrics.log(loss=5)
    assert metrics.ready() == [] and metrics.latest == {}
    gate.set()
    spmdx.sync(wait=True)
    assert metrics.ready() == [Record(0, {"loss": 2.0}), Record(1, {"loss": 5.0})]
    assert metrics.latest == {"loss": 5.0}
    library._destroy()


def test_a_value_is_that_of_its_call_whatever_is_written_later():
    metrics = Metrics()
    total = torch.zeros(2).to("spmdx")
    for step in range(4):
        total.add_(1)
        metrics.log(total=total[0] if step % 2 else total.sum())
        if step != 1:
            spmdx.mark_step()
        total.mul_(2)
    expected, plain = [], torch.zeros(2)
    for step in range(4):
        plain.add_(1)
        expected.append(float(plain[0] if step % 2 else plain.sum()))
        plain.mul_(2)
    assert [record.values["total"] for record in metrics.close()] == expected


def test_a_tensor_that_was_computed_is_kept_as_it_was():
    metrics = Metrics()
    total = torch.ones(()).to("spmdx") * 3
    spmdx.sync(wait=True)
    metrics.log(total=total)
    total.add_(1)
    spmdx.sync(wait=True)
    assert metrics.ready() == [Record(0, {"total": 3.0})] and total.item() == 4.0


def test_values_reach_a_function_and_keep_their_steps():
    got = []
    with Metrics(got.append, every=100) as metrics:
        metrics.log(10, loss=torch.tensor(2.0))
        metrics.log(20, loss=torch.ones(1, 1).to("spmdx") * 7)
        metrics.log(loss=1)
    assert got == [Record(n, {"loss": v}) for n, v in ((10, 2.0), (20, 7.0), (21, 1.0))]


def test_tensorboard_gets_each_value(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = tensorboard.SummaryWriter(str(tmp_path))
    mesh = spmdx.Mesh(range(4), (4,), ("x",))
    with Metrics(writer, tokens_per_step=11, every=2) as metrics:
        train("spmdx", mesh, log=metrics.log)
    writer.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert {"loss", "norm", "lr", "tokens_per_second", "mfu"} <= set(read.Tags()["scalars"])
    plain = []
    train("cpu", log=lambda **v: plain.append(float(v["loss"].detach())))
    events = read.Scalars("loss")
    assert [event.step for event in events] == list(range(6))
    assert [event.value for event in events] == pytest.approx(plain, rel=1e-5)


def test_rates_are_those_of_the_clock(monkeypatch):
    seconds = iter(range(0, 1000, 2))  # a step takes 2 s
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    metrics = Metrics(tokens_per_step=100, flops_per_step=6e9, peak_flops=30e9, every=3)
    for _ in range(7):
        metrics.log()
    rated = {record.step: record.values for record in metrics.close() if record.values}
    expected = {"steps_per_second": 0.5, "tokens_per_second": 50.0, "mfu": 0.1}
    assert rated == {3: pytest.approx(expected), 6: pytest.approx(expected)}


def test_work_is_that_of_the_plan_and_the_peak_that_of_the_topology(monkeypatch):
    seconds = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    mesh = spmdx.Mesh(range(4), (4,), ("x",))
    x = spmdx.mark_sharding(torch.ones(64, 32).to("spmdx"), mesh, ("x", None))
    w = torch.ones(32, 16).to("spmdx")
    metrics = Metrics(every=1)
    for _ in range(3):
        product = x @ w
        spmdx.mark_step()
        metrics.log()
    del product
    peak = 4 * spmdx.get_hardware().flops_per_second["f32"]
    records = metrics.close()
    assert records[-1].values["mfu"] == pytest.approx(2 * 64 * 32 * 16 / peak)


def test_an_error_of_a_step_comes_out_where_values_are_awaited():
    library = torch.library.Library("seeing", "FRAGMENT")
    library.define("fails(Tensor x) -> Tensor")

    def fail(x):
        raise ArithmeticError("no number")

    library.impl("fails", fail, "CPU")
    library.impl("fails", lambda x: torch.empty_like(x), "Meta")
    metrics = Metrics()
    metrics.log(loss=torch.ops.seeing.fails(torch.ones(()).to("spmdx")))
    with pytest.raises(Exception, match="no number"):
        metrics.close()
    spmdx.sync(wait=True)
    library._destroy()


def test_numbers_of_numpy_are_numbers():
    metrics = Metrics()
    metrics.log(loss=numpy.float32(0.5), count=numpy.int64(3))
    assert metrics.close() == [Record(0, {"loss": 0.5, "count": 3.0})]


WRONG = {
    "writer": (lambda: Metrics(3), "the writer is 3. Expected what has add_scalar"),
    "tokens": (lambda: Metrics(tokens_per_step=0), "tokens_per_step is 0. Expected a number"),
    "flops": (lambda: Metrics(flops_per_step="x"), "flops_per_step is 'x'. Expected a number"),
    "peak": (lambda: Metrics(peak_flops=float("nan")), "peak_flops is nan. Expected a number"),
    "every": (lambda: Metrics(every=0), "every is 0. Expected an int of at least 1"),
    "value": (lambda: Metrics().log(loss="high"), "loss is 'high'. Expected a number or a tensor"),
    "shape": (
        lambda: Metrics().log(loss=torch.ones(3)),
        "loss is a tensor of shape (3,). Expected",
    ),
    "complex": (
        lambda: Metrics().log(loss=torch.tensor(1j)),
        "loss is a tensor of torch.complex64. Expected one that holds a real number",
    ),
    "meta": (
        lambda: Metrics().log(loss=torch.ones((), device="meta")),
        "loss is a tensor on device 'meta'. Expected one that holds a real number",
    ),
    "step": (lambda: Metrics().log(-1), "the step is -1. Expected an int of at least 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name):
    call, words = WRONG[name]
    said = message_of(spmdx.ShardingError, call)
    assert "Metrics" in said and words in said
