# SPDX-License-Identifier: Apache-2.0
"""Choices of cuts: what they hold, how long they hold, and models that have nothing to choose."""

import gc
import weakref

import pytest
import spmdx
import torch
from messages import message_of
from torch import nn


def line_of(p):
    return spmdx.Mesh(range(p), (p,), ("pipe",))


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softmax, nn.Sigmoid, nn.ReLU])
def test_a_model_is_freed_though_its_cuts_were_chosen(activation):
    """Ops that save their own results hold what a trial saves for them."""
    blocks = (nn.Sequential(nn.Linear(4, 4), activation()) for _ in range(4))
    model = spmdx.nn.pipeline(nn.Sequential(*blocks).to("spmdx"), line_of(2))
    model(torch.ones(2, 4).to("spmdx")).sum().backward()
    spmdx.sync(wait=True)
    held = weakref.ref(model), weakref.ref(model[0][0].weight)
    del model
    gc.collect()
    assert [ref() for ref in held] == [None, None]


def test_cuts_chosen_while_planning_are_chosen_again_for_what_runs():
    model = nn.Sequential(nn.Embedding(7, 8), *(nn.Linear(8, 8) for _ in range(4))).to("spmdx")
    spmdx.nn.pipeline(model, line_of(2))
    x = torch.randint(7, (16,)).to("spmdx")
    for _ in range(2):
        with spmdx.plan_only():
            for _ in range(3):
                model(x).sum().backward()
                spmdx.mark_step()
            planned = {n: spmdx.get_sharding(p).stage for n, p in model.named_parameters()}
            assert {stage for _, stage in planned.values()} == {0, 1}
        model.zero_grad()
        assert all(spmdx.get_annotation(p) is None for p in model.parameters())
    for _ in range(2):
        model(x).sum().backward()
    spmdx.mark_step()
    assert {n: spmdx.get_sharding(p).stage for n, p in model.named_parameters()} == planned
    assert len(spmdx.explain().pipeline.stages) == 2
    assert not model._forward_pre_hooks


class Uncalled(nn.Sequential):
    def forward(self, x):
        return x * 2


NONE_RAN = (
    "HERE: pipeline: cuts are chosen among the modules within the model that its first call runs, "
    "and it ran none that holds a parameter or a buffer. Expected a model of layers. Call the "
    "model whose forward calls them, or mark tensors by spmdx.mark_stage."
)


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Linear(4, 4),
        lambda: nn.Sequential(nn.Tanh(), nn.Tanh()),
        lambda: Uncalled(nn.Linear(4, 4), nn.Linear(4, 4)),
    ],
)
def test_a_model_without_layers_is_refused(build):
    model = spmdx.nn.pipeline(build().to("spmdx"), line_of(2))
    x = torch.ones(2, 4).to("spmdx")
    assert message_of(spmdx.ShardingError, lambda: model(x)) == NONE_RAN
