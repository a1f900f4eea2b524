# SPDX-License-Identifier: Apache-2.0
"""What pipelines send, keep and reduce, in counts that no machine changes."""

import collections

import pytest
import spmdx
import torch
from torch import nn

WIDTH, ROWS, M = 16, 8, 4


class Layer(nn.Module):
    """A matrix product there and back, as Megatron cuts it."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def model_of(layers=4):
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(layers))).to("spmdx")


def cut_by_model(model, mesh):
    for layer in model:
        spmdx.mark_sharding(layer.up.weight, mesh, ("model", None))
        spmdx.mark_sharding(layer.up.bias, mesh, ("model",))
        spmdx.mark_sharding(layer.down.weight, mesh, (None, "model"))


def step(model, mesh, m=M, axis=None):
    """One step of accumulated microbatches of `ROWS` rows; what was planned, and the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1)
    losses = []
    for _ in range(m):
        x = torch.randn(ROWS, WIDTH).to("spmdx")
        if axis:
            spmdx.mark_sharding(x, mesh, (axis, None))
        loss = model(x).square().mean() / m
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    spmdx.mark_step()
    return spmdx.explain(), [loss.item() for loss in losses]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("p", [2, 4])
def test_each_boundary_carries_an_activation_and_its_gradient(p, schedule):
    mesh = spmdx.Mesh(range(p), (p,), ("pipe",))
    model = model_of()
    cuts = [str(4 * stage // p) for stage in range(1, p)]
    spmdx.nn.pipeline(model, mesh, cuts=cuts, schedule=schedule)
    report, _ = step(model, mesh)
    activation = ROWS * WIDTH * 4
    assert report.pipeline.microbatches == M and len(report.pipeline.stages) == p
    sent = collections.Counter()
    for send in report.pipeline.sends:
        sent[send.sender, send.receiver] += send.bytes
    for stage in range(p - 1):
        assert sent.pop((stage, stage + 1)) == M * activation
        assert sent.pop((stage + 1, stage)) == M * activation
    assert not sent


def inside(report):
    """Bytes by kind and axes; how many collectives become one depends on their order."""
    found = collections.Counter()
    for c in report.collectives:
        if "pipe" not in c.axes:
            found[c.kind, c.axes] += c.bytes * c.count
    return found


@pytest.mark.parametrize("fsdp", [False, True])
def test_inside_of_stages_collectives_are_those_without_a_pipeline(fsdp):
    flat = spmdx.Mesh(range(4), (2, 2), ("data", "model"))
    deep = spmdx.Mesh(range(8), (2, 2, 2), ("data", "model", "pipe"))
    reports = []
    for mesh in (flat, deep):
        model = model_of()
        cut_by_model(model, mesh)
        if fsdp:
            spmdx.fully_shard(model, mesh, axis="data")
        if mesh is deep:
            spmdx.nn.pipeline(model, mesh, cuts=["2"])
        reports.append(step(model, mesh, axis="data"))
    (one, losses), (other, piped) = reports
    assert torch.allclose(torch.tensor(losses), torch.tensor(piped), rtol=1e-5)
    assert inside(one) == inside(other)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(2)))
        self.head = nn.Linear(WIDTH, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.layers(self.embed(x)))


@pytest.mark.parametrize(("data", "rows"), [(1, ROWS), (1, 1), (2, ROWS), (2, 2)])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_tied_weight_and_its_gradient_cross_once_a_step(set_to_none, data, rows):
    """Also where few rows were less to send than the gradient."""
    mesh = spmdx.Mesh(range(2 * data), (2, data), ("pipe", "data"))
    torch.manual_seed(0)
    model = Tied().to("spmdx")
    spmdx.nn.pipeline(model, mesh, cuts=["layers.1"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):  # in the first step every device has the weight
        for _ in range(M):
            x = torch.randint(32, (rows,)).to("spmdx")
            spmdx.mark_sharding(x, mesh, ("data",))
            nn.functional.cross_entropy(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none)
        spmdx.mark_step()
    weight, activation = 32 * WIDTH * 4, rows // data * WIDTH * 4
    sent = collections.Counter()
    for send in spmdx.explain().pipeline.sends:
        sent[send.sender, send.receiver] += send.bytes
    assert sent == {(0, 1): M * activation + weight, (1, 0): M * activation + weight}


@pytest.mark.parametrize("sharded_first", [True, False])
@pytest.mark.parametrize("cuts", [["2"], None])
def test_in_whatever_order_a_model_is_cut_a_stage_keeps_its_optimizer(sharded_first, cuts):
    mesh = spmdx.Mesh(range(4), (2, 2), ("model", "pipe"))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters())
    model.to("spmdx")
    ways = [
        lambda: spmdx.nn.shard_module(model, mesh, {"*.weight": ("model", None)}),
        lambda: spmdx.nn.pipeline(model, mesh, cuts=cuts),
    ]
    for way in ways if sharded_first else reversed(ways):
        way()
    kept = 2 * (WIDTH * WIDTH // 2 + WIDTH) * 4  # of two layers, on a device
    for step in range(3):
        for _ in range(M):
            model(torch.ones(ROWS, WIDTH).to("spmdx")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        found = spmdx.explain().pipeline
        assert {(send.sender, send.receiver) for send in found.sends} == {(0, 1), (1, 0)}
        for stage in found.stages:
            weights_alone, scalars = 3 * kept - 2 * 2 * WIDTH * 4, 2 * 2 * 4  # steps are counted
            if step == 0:
                assert stage.parameter_bytes == kept
            else:  # what belongs to biases may be cut, too
                assert weights_alone <= stage.parameter_bytes <= 3 * kept + scalars
