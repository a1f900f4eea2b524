# SPDX-License-Identifier: Apache-2.0
"""Parameters that lie on other stages than is asked for: the step runs on those asked for."""

import copy

import pytest
import spmdx
import torch
from torch import nn

WIDTH = 16


def layers(count=4):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(count))).double()


def train(model, device="cpu", m=3):
    """Losses of one step of accumulated microbatches, and the parameters after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(m):
        x = torch.randn(4, WIDTH, generator=generator, dtype=torch.float64).to(device)
        loss = model(x).square().mean() / m
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return [tensor.detach().cpu() for tensor in (*losses, *model.parameters())]


def works(stage):
    return stage.forward_ns > 0 and stage.backward_ns > 0


def mesh_of(p):
    return spmdx.Mesh(range(p), (p,), ("pipe",))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_other_cuts_hold_from_the_next_step_on(schedule):
    plain = layers()
    model = copy.deepcopy(plain).to("spmdx")
    for cuts in (["3"], ["1"], ["2"], ["1"]):
        spmdx.nn.pipeline(model, mesh_of(2), cuts=cuts, schedule=schedule)
        wanted, got = train(plain), train(model, "spmdx")
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        assert all(works(stage) for stage in spmdx.explain().pipeline.stages)
        first = int(cuts[0])
        assert [spmdx.get_sharding(layer.weight).stage[1] for layer in model] == [
            int(i >= first) for i in range(4)
        ]


@pytest.mark.parametrize("p", [2, 3, 4])
def test_cuts_chosen_within_plan_only_hold_for_weights_made_in_the_same_step(p):
    with spmdx.plan_only():
        with torch.device("spmdx"):
            model = layers(6)
        spmdx.nn.pipeline(model, mesh_of(p))
        for _ in range(2):
            model(torch.ones(4, WIDTH, dtype=torch.float64, device="spmdx")).mean().backward()
        spmdx.mark_step()
        assert all(works(stage) for stage in spmdx.explain().pipeline.stages)


def test_traces_without_stages_end_where_they_do_without_pipelines():
    spmdx.nn.pipeline(copy.deepcopy(layers()).to("spmdx"), mesh_of(2), cuts=["2"])
    spmdx.sync(wait=True)
    before = spmdx.debug.counters()["implicit_syncs"]
    x = torch.zeros(4, device="spmdx")
    for _ in range(60_000):
        x = x + 1
    assert spmdx.debug.counters()["implicit_syncs"] > before
    assert x.tolist() == [60_000.0] * 4
