# SPDX-License-Identifier: Apache-2.0
"""What a given strategy takes: as the plan has it that a program marked so would get."""

import dataclasses

import pytest
import searched
import spmdx
import torch
from spmdx.auto import Strategy

spmdx.runtime.set_device_count(8)
TENSOR = {"*.up.weight": ("model", None), "*.down.weight": (None, "model")}


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def program(width=64, blocks=8):
    model = torch.nn.Sequential(*(Block(width) for _ in range(blocks))).to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters())
    return searched.step_of(model, optimizer), model, optimizer


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_prediction_is_the_plan_of_a_program_that_is_marked_so(devices, zero):
    strategy = Strategy(data=devices, zero=zero, microbatches=2)
    step, model, optimizer = program()
    batch = torch.randn(4 * devices, 64)
    found = spmdx.auto.predict(strategy, step, model, optimizer, batch)
    assert found.planned and found.why == "" and found.strategy == strategy
    mesh = strategy.mesh()
    strategy.mark(model, optimizer, mesh)
    for _ in range(3):  # the first makes the optimizer's state
        step([strategy.mark_batch(part, mesh) for part in spmdx.auto.split(batch, 2)])
        spmdx.mark_step()
    report = spmdx.explain()
    assert found.wire_bytes == report.wire_bytes
    assert found.step_ns == pytest.approx(report.step_ns, rel=0.01)


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(data=2, microbatches=64),
        Strategy(pipe=2, microbatches=64, schedule="1f1b"),
        Strategy(pipe=2, data=2, microbatches=32, schedule="interleaved:2", chunks=2),
        Strategy(pipe=2, model=2, microbatches=64, schedule="1f1b", plan=TENSOR),
        Strategy(data=4, zero=3, microbatches=32),
    ],
    ids=str,
)
def test_many_microbatches_are_predicted_from_few(strategy, monkeypatch):
    planner = "spmdx._auto.planner"
    step, model, optimizer = program(256)
    batch = torch.empty(512, 256, device="meta")
    all_planned = spmdx.auto.predict(strategy, step, model, optimizer, batch)
    monkeypatch.setattr(f"{planner}.NODES_OF_A_PREDICTION", 3_000)
    few_planned = spmdx.auto.predict(strategy, step, model, optimizer, batch)
    assert few_planned.step_ns == pytest.approx(all_planned.step_ns, rel=0.03)
    assert few_planned.efficiency != all_planned.efficiency  # it was another way
    assert few_planned.wire_bytes == pytest.approx(all_planned.wire_bytes, rel=0.03)
    assert few_planned.peak_bytes == pytest.approx(all_planned.peak_bytes, rel=0.03)


def test_a_step_of_very_many_nodes_is_one_plan():
    """In pieces, of which only the last is told, twice the work would not take twice as long."""
    step, model, _ = program(64, blocks=16)
    times = [
        spmdx.auto.predict(
            Strategy(microbatches=count), step, model, batch=torch.empty(count, 64, device="meta")
        ).step_ns
        for count in (60, 120, 240)
    ]
    assert times[2] - times[1] == pytest.approx(2 * (times[1] - times[0]), rel=0.02)


class Experts(torch.nn.Module):
    """Of which "model" cuts what it is told; the planner leaves others cut where it likes."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(64, 8)
        self.up = torch.nn.Parameter(torch.randn(8, 64, 128) / 8)
        self.down = torch.nn.Parameter(torch.randn(8, 128, 64) / 8)

    def forward(self, x):
        shares = self.gate(x).softmax(-1)
        y = torch.einsum("bd,edh->ebh", x, self.up).relu()
        return x + torch.einsum("ebd,be->bd", torch.einsum("ebh,ehd->ebd", y, self.down), shares)


def test_a_prediction_is_of_steps_that_repeat_not_of_the_first():
    experts = ("model", None, None)
    strategy = Strategy(model=4, plan={"*.up": experts, "*.down": experts})
    model = torch.nn.Sequential(Experts(), Experts(), torch.nn.Linear(64, 8)).to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters())
    step = searched.step_of(model, optimizer)
    spmdx.set_topology("infiniband")
    batch = torch.randn(48, 64)
    found = spmdx.auto.predict(strategy, step, model, optimizer, batch)
    mesh, times = strategy.mesh(), []
    strategy.mark(model, optimizer, mesh)
    for _ in range(4):
        step([strategy.mark_batch(batch, mesh)])
        spmdx.mark_step()
        times.append(spmdx.explain().step_ns)
    assert times[0] < 0.7 * times[1]  # the first leaves for later what it spares
    assert found.step_ns == times[1] == times[2] == times[3]
    assert found.peak_bytes == spmdx.explain().peak_bytes


@pytest.mark.parametrize("strategy", [Strategy(data=4, zero=2), Strategy(data=8, zero=3)], ids=str)
def test_a_byte_less_than_is_needed_costs_little(strategy):
    strategy = dataclasses.replace(strategy, microbatches=3)
    step, model, optimizer = program()
    batch = torch.empty(768, 64, device="meta")

    def under(limit):
        return spmdx.auto.predict(
            strategy, step, model, optimizer, batch, topology="nvlink", memory_limit=limit
        )

    free = under(None)
    tight = under(free.peak_bytes - 1)
    assert tight.peak_bytes < free.peak_bytes and tight.why == ""
    assert tight.step_ns < 1.2 * free.step_ns


def test_the_model_is_as_it_was():
    step, model, optimizer = program()
    mesh = spmdx.Mesh(range(2), (2,), ("data",))
    spmdx.mark_sharding(model[0].up.weight, mesh, ("data", None))
    before = [p.detach().cpu().clone() for p in model.parameters()]
    spmdx.auto.predict(Strategy(data=8), step, model, optimizer, torch.ones(8, 64))
    assert spmdx.get_annotation(model[0].up.weight).mesh == mesh
    assert not optimizer.state
    assert all(torch.equal(p.cpu(), b) for p, b in zip(model.parameters(), before, strict=True))


def test_what_memory_lacks_is_said():
    step, model, optimizer = program(256)
    found = spmdx.auto.predict(
        Strategy(data=2), step, model, optimizer, torch.ones(8, 256), memory_limit="8 MiB"
    )
    assert found.why.startswith("lacks ") and found.peak_bytes > 8 * 2**20


@pytest.mark.parametrize(
    ("strategy", "batch", "said"),
    [
        ("data", 8, "predict: the strategy is a str. Expected a spmdx.auto.Strategy."),
        (Strategy(data=0), 8, "data of the strategy is 0. Expected a number, at least 1."),
        (Strategy(microbatches=True), 8, "microbatches of the strategy is True."),
        (Strategy(data=3), 8, "a batch of 8 samples is split into 1 microbatches over 3 devices."),
        (Strategy(zero=4), 8, "zero of the strategy is 4. Expected one of (0, 1, 2, 3)."),
        (Strategy(zero=[0, 1]), 8, "zero of the strategy is [0, 1]. Expected one of"),
        (Strategy(zero=(2,)), 8, "zero of the strategy is (2,). Expected one of"),
        (Strategy(zero=1.0), 8, "zero of the strategy is 1.0. Expected one of"),
        (Strategy(zero=None), 8, "zero of the strategy is None. Expected one of"),
        (Strategy(zero=True), 8, "zero of the strategy is True. Expected one of"),
        (Strategy(pipe=2, schedule=7), 8, "schedule of the strategy is 7. Expected the name of"),
        (Strategy(plan=[1]), 8, "the plan is a list. Expected a dict from patterns of names"),
        (Strategy(model=2, plan={3: None}), 8, "the pattern 3 matches no parameter or buffer."),
        (
            Strategy(model=2, plan={"*.sideways": ("model", None)}),
            8,
            "the pattern '*.sideways' matches no parameter or buffer. Expected names like "
            "'0.up.weight', '0.up.bias', '0.down.weight'. Mend the pattern, or drop it.",
        ),
        (Strategy(pipe=2, schedule="2f2b"), 8, "2f2b"),
        (Strategy(model=2, plan={"*.up.weight": ("data", None)}), 8, "'data'"),
    ],
)
def test_what_is_no_strategy_is_refused(strategy, batch, said):
    step, model, optimizer = program()
    with pytest.raises(spmdx.ShardingError) as error:
        spmdx.auto.predict(strategy, step, model, optimizer, torch.ones(batch, 64))
    assert said in str(error.value)


@pytest.mark.parametrize("frozen", [0, 7])
def test_a_search_and_a_prediction_agree(frozen):
    step, model, optimizer = program()
    model[:frozen].requires_grad_(False)
    batch = torch.ones(16, 64)
    plan = spmdx.auto.search(step, model, optimizer, batch, devices=4, topology="nvlink")
    for candidate in [c for c in plan.candidates if c.planned][:5]:
        if candidate.strategy.microbatches > 3:
            continue
        again = spmdx.auto.predict(
            candidate.strategy, step, model, optimizer, batch, topology="nvlink"
        )
        figures = [(c.step_ns, c.wire_bytes, c.peak_bytes) for c in (again, candidate)]
        assert figures[0] == figures[1]
