# SPDX-License-Identifier: Apache-2.0
"""What zero_report computes, and the messages of both."""

import pytest
import spmdx
import torch
from messages import cases, eight_devices, message_of
from torch import nn


@pytest.fixture(autouse=True)
def devices():
    eight_devices()


def mesh_of(n):
    return spmdx.Mesh(range(n), (n,), ("data",))


def net():
    return nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24))


def test_the_table_of_the_paper():
    """Table 1 of arXiv:1910.02054: 7.5 billion parameters, in units of 12 + 2 + 2 bytes.

    Mixed precision keeps 12 bytes of state for each parameter of 2: three of float32.
    """

    class Mixed(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p] = {k: torch.zeros_like(p, dtype=torch.float32) for k in "abc"}

    with torch.device("meta"):
        model = nn.Linear(75_000, 100_000, bias=False, dtype=torch.bfloat16)
    table = {
        4: (120, 52.5, 41.25, 30),
        16: (120, 35.625, 21.5625, 7.5),
        64: (120, 31.40625, 16.640625, 1.875),
        1024: (120, 30.087890625, 15.1025390625, 0.1171875),
    }
    for n, wanted in table.items():
        stages = spmdx.nn.zero_report(model, Mixed(model.parameters()), n).stages[:4]
        assert tuple(stage.held / 1e9 for stage in stages) == pytest.approx(wanted, rel=1e-9)
        sent = 2 * 7.5e9 * (n - 1) / n
        wires = [stage.wire for stage in stages]
        assert wires == pytest.approx([2 * sent, 2 * sent, 2 * sent, 3 * sent], rel=1e-9)


MAKERS = {
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adafactor": torch.optim.Adafactor,
}


@pytest.mark.parametrize(
    "kind, values", [("Adam", 2), ("AdamW", 2), ("momentum", 1), ("Adafactor", 0)]
)
def test_state_is_counted_before_it_is_there(kind, values):
    model = nn.Linear(10, 20, bias=False)
    optimizer = MAKERS[kind](model.parameters())
    before = spmdx.nn.zero_report(model, optimizer, 2).stages[0].optimizer_state
    model(torch.ones(2, 10)).sum().backward()
    optimizer.step()
    after = spmdx.nn.zero_report(model, optimizer, 2).stages[0].optimizer_state
    assert before == after == values * 200 * 4
    assert "ZeRO over 2 devices" in str(spmdx.nn.zero_report(model, optimizer, 2))


class Adapted(nn.Module):
    """A matrix that does not learn, beside two thin ones that do."""

    def __init__(self):
        super().__init__()
        self.whole = nn.Linear(256, 256, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(256, 8, bias=False), nn.Linear(8, 256, bias=False)

    def forward(self, x):
        return self.whole(x) + self.up(self.down(x))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_what_does_not_learn_is_held_and_gathered_in_the_last_stage_alone(stage):
    torch.manual_seed(0)
    model, mesh = Adapted().to("spmdx"), mesh_of(8)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    if stage:
        spmdx.nn.zero(model, optimizer, mesh, stage=stage)
    for _ in range(3):
        x = spmdx.mark_sharding(torch.randn(2048, 256).to("spmdx"), mesh, ("data", None))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
    report = spmdx.nn.zero_report(model, optimizer, 8)
    formula, planned = report.stages[stage], report.stages[4]
    assert formula.wire == planned.wire + report.kept_copies + report.not_read
    assert planned.wire == spmdx.explain().wire_bytes
    assert formula.parameters == planned.parameters
    assert formula.parameters == 4 * (256 * 256 + 2 * 256 * 8) // (8 if stage == 3 else 1)


@pytest.mark.parametrize(
    "options",
    [
        {"capturable": True},
        {"differentiable": True},
        {"fused": True},
        {"foreach": True},
        {"lr": torch.tensor(0.1), "capturable": True, "foreach": True},
    ],
)
def test_state_is_the_same_whatever_computes_it(options):
    model = nn.Linear(10, 20, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), **options)
    assert spmdx.nn.zero_report(model, optimizer, 2).stages[0].optimizer_state == 2 * 200 * 4


def test_state_of_sparse_gradients_is_counted():
    model = nn.Embedding(20, 10, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    before = spmdx.nn.zero_report(model, optimizer, 2).stages[0].optimizer_state
    model(torch.tensor([3])).sum().backward()
    optimizer.step()
    after = spmdx.nn.zero_report(model, optimizer, 2).stages[0].optimizer_state
    assert before == after == 2 * 200 * 4


def test_an_optimizer_that_wants_more_than_gradients_warns():
    model = nn.Linear(10, 20, bias=False)
    optimizer = torch.optim.LBFGS(model.parameters())
    with pytest.warns(UserWarning, match="zero_report: LBFGS takes no step on a parameter alone"):
        report = spmdx.nn.zero_report(model, optimizer, 2)
    assert report.stages[0].optimizer_state == 0 and report.stages[0].parameters == 800


# ---- errors --------------------------------------------------------------------------------------


def zero(**options):
    model = net().to("spmdx")
    given = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), **options}
    return spmdx.nn.zero(**{"mesh": mesh_of(4), **given})


def on_another_mesh():
    model = net().to("spmdx")
    spmdx.mark_sharding(model[0].weight, mesh_of(2), ("data", None))
    return spmdx.nn.zero(model, torch.optim.AdamW(model.parameters()), mesh_of(4))


def of_the_cpu():
    model = net()
    return spmdx.nn.zero(model, torch.optim.AdamW(model.parameters()), mesh_of(4))


CASES = [
    (
        "a stage too far",
        lambda: zero(stage=4),
        "HERE: zero: the stage is 4. Expected 1, 2 or 3. Write 1 to cut the optimizer's state.",
    ),
    (
        "no stage",
        lambda: zero(stage=True),
        "HERE: zero: the stage is True. Expected 1, 2 or 3. Write 1 to cut the optimizer's state.",
    ),
    (
        "a size below 0",
        lambda: zero(min_size=-1),
        "HERE: zero: min_size is -1. Expected a number of elements, at least 0. Leave it out to "
        "cut every parameter.",
    ),
    (
        "no axis",
        lambda: zero(axis="pipe"),
        "HERE: zero: Mesh(data=4) has no axis 'pipe'. Expected one of ('data',). Pass axis='data'.",
    ),
    (
        "no optimizer",
        lambda: zero(optimizer=3),
        "HERE: zero: the optimizer is a int. Expected a torch.optim.Optimizer. Pass the one that "
        "steps on the model's parameters.",
    ),
    (
        "an optimizer of another",
        lambda: zero(optimizer=torch.optim.AdamW(net().parameters())),
        "HERE: zero: the optimizer holds none of the model's parameters. Expected one that steps "
        'on them. Make it after model.to("spmdx"), with model.parameters().',
    ),
    (
        "no model",
        lambda: zero(model=3),
        "HERE: zero: the first argument is a int. Expected a torch.nn.Module. Pass a model or a "
        "part of one.",
    ),
    (
        "another mesh",
        on_another_mesh,
        "HERE: zero: 0.weight is annotated for Mesh(data=2), and the mesh is Mesh(data=4). "
        "Expected the same. Pass the mesh of the parameters, or mark them for this one first.",
    ),
    (
        "the CPU",
        of_the_cpu,
        "HERE: zero: 0.weight is on device 'cpu'. Expected a module on device 'spmdx'. Move it "
        'there first: module.to("spmdx").',
    ),
    (
        "a report of another",
        lambda: spmdx.nn.zero_report(net(), torch.optim.AdamW(net().parameters()), 2),
        "HERE: zero_report: the optimizer holds none of the model's parameters. Expected one that "
        'steps on them. Make it after model.to("spmdx"), with model.parameters().',
    ),
]


@pytest.mark.parametrize("call, text", cases(CASES))
def test_errors(call, text):
    assert message_of(spmdx.ShardingError, call) == text
