# SPDX-License-Identifier: Apache-2.0
"""Whole training steps need exactly the collectives that are known to be enough for them."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from known_steps import (
    COLUMN,
    COLUMN_BIAS,
    ROW,
    SIZES,
    Perceptron,
    kinds,
    line,
    mark,
    parameters,
    perceptron_step,
    reduced,
    scattered,
    settled,
    step,
)
from torch import nn


@pytest.mark.parametrize("group", SIZES)
def test_a_data_parallel_perceptron_reduces_its_gradients_once(group):
    model = Perceptron(3, 64).to("spmdx")
    report = perceptron_step(model, line(group, "data"), ("data", None))
    assert kinds(report) == {"all_reduce": 1}
    assert report.wire_bytes == reduced(parameters(model) + 1, group)


@pytest.mark.parametrize("layers", [2, 4, 6])
@pytest.mark.parametrize("group", SIZES)
def test_alternating_column_and_row_weights_take_layers_minus_one_reductions(layers, group):
    mesh, model = line(group, "model"), Perceptron(layers, 64).to("spmdx")
    for i, layer in enumerate(model.layers):
        mark(layer, mesh, ROW if i % 2 else COLUMN, None if i % 2 else COLUMN_BIAS)
    settled()
    report = perceptron_step(model, mesh, (None, None), batch=64)
    assert kinds(report) == {"all_reduce": layers - 1}
    assert report.wire_bytes == (layers - 1) * reduced(64 * 64, group)


@pytest.mark.parametrize("group", SIZES)
def test_fully_sharded_training_gathers_twice_and_scatters_once(group):
    mesh, model = line(group, "data"), Perceptron(3, 64).to("spmdx")
    for p in model.parameters():
        spmdx.mark_sharding(p, mesh, ("data",) + (None,) * (p.dim() - 1))
    settled()
    report = perceptron_step(model, mesh, ("data", None))
    weights = 3 * 64 * 64
    biases = 3 * 64
    assert set(kinds(report, 16)) == {"all_gather", "reduce_scatter"}
    gathered = sum(c.bytes for c in report.collectives if c.kind == "all_gather")
    # The first layer's weight has no use in backward: its input needs no gradient.
    assert gathered <= scattered(weights + 2 * 64 * 64 + biases, group)
    back = sum(c.bytes for c in report.collectives if c.kind == "reduce_scatter")
    assert back == scattered(weights + biases, group)
    assert report.wire_bytes - gathered - back == reduced(1, group)  # the loss


def zero(group, gradients):
    """A data parallel step with cut optimizer state (and gradients) and whole parameters."""
    mesh, model = line(group, "data"), Perceptron(3, 64).to("spmdx")
    for p in model.parameters():
        spmdx.mark_sharding(p, mesh, (None,) * p.dim())
    x, y = torch.randn(512, 64).to("spmdx"), torch.randn(512, 64).to("spmdx")
    for t in (x, y):
        spmdx.mark_sharding(t, mesh, ("data", None))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    reports = []
    for _ in range(3):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if gradients:
            for p in model.parameters():
                spmdx.mark_sharding(p.grad, mesh, ("data",) + (None,) * (p.dim() - 1))
        optimizer.step()
        for p in model.parameters():
            for name in ("exp_avg", "exp_avg_sq"):
                state = optimizer.state[p][name]
                spmdx.mark_sharding(state, mesh, ("data",) + (None,) * (p.dim() - 1))
        if not gradients:
            optimizer.zero_grad()
        reports.append(spmdx.explain(loss))
        spmdx.mark_step()
        optimizer.zero_grad()
    return model, reports[-1]


@pytest.mark.parametrize("gradients", [False, True], ids=["state cut", "state and gradients cut"])
@pytest.mark.parametrize("group", SIZES)
def test_a_cut_optimizer_state_scatters_gradients_and_gathers_parameters(group, gradients):
    model, report = zero(group, gradients)
    count = parameters(model)
    assert set(kinds(report, 16)) == {"reduce_scatter", "all_gather"}
    assert report.wire_bytes == 2 * scattered(count, group) + reduced(1, group)


class Experts(nn.Module):
    """Experts by einsum over groups of tokens: dispatch, two layers an expert, combine."""

    def __init__(self, experts, width, hidden, capacity):
        super().__init__()
        self.capacity = capacity
        self.gate = nn.Parameter(torch.randn(width, experts) * 0.1)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * 0.1)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.1)

    def forward(self, x, slots):
        weights = torch.einsum("gsm,me->gse", x, self.gate).softmax(-1)
        dispatch = (
            slots  # [groups, tokens, experts, capacity]: which slot of which expert a token has
        )
        combine = weights.unsqueeze(-1) * slots
        h = torch.einsum("gsec,gsm->egcm", dispatch, x)
        h = torch.einsum("egcm,emh->egch", h, self.up).relu()
        h = torch.einsum("egch,ehm->egcm", h, self.down)
        return torch.einsum("gsec,egcm->gsm", combine, h)


def experts_step(group, layers, marked):
    groups, tokens, width, hidden, capacity = 8, 32, 64, 128, 8
    mesh = line(group, "expert")
    model = nn.ModuleList(Experts(group, width, hidden, capacity) for _ in range(layers)).to(
        "spmdx"
    )
    for layer in model:
        for weight in (layer.up, layer.down):
            spmdx.mark_sharding(weight, mesh, ("expert", None, None))
    x, y = (torch.randn(groups, tokens, width).to("spmdx") for _ in range(2))
    slots = torch.rand(groups, tokens, group, capacity).gt(0.9).float().to("spmdx")
    for t in (x, y, slots):
        spmdx.mark_sharding(t, mesh, ("expert",) + (None,) * (t.dim() - 1))
    settled()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss_of(model):
        h = x
        for layer in model:
            h = h + layer(h, slots)
        return F.mse_loss(h, y)

    step(model, optimizer, loss_of)
    report = step(model, optimizer, loss_of)
    sent = (
        groups * group * capacity * width // group
    )  # elements a device has of the dispatched tokens
    return report, layers, scattered(sent, group), width * group


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("group", [4, 8])
def test_experts_exchange_tokens_four_times_and_reduce_the_gate(group, layers):
    report, layers, exchange, gate = experts_step(group, layers, marked=True)
    assert set(kinds(report)) == {"all_to_all", "all_reduce"}
    # The first layer's tokens need no gradient, so one exchange of the four falls away there.
    assert report.count("all_to_all") in (4 * layers, 4 * layers - 1)
    assert (
        sum(c.bytes for c in report.collectives if c.kind == "all_to_all") <= 4 * layers * exchange
    )
    reductions = sum(c.bytes for c in report.collectives if c.kind == "all_reduce")
    assert reductions == reduced(layers * gate + 1, group)


@pytest.mark.parametrize("group", SIZES)
def test_cross_entropy_of_a_cut_batch_moves_two_numbers(group):
    mesh = line(group, "data")
    logits = torch.randn(64, 1000).to("spmdx").requires_grad_()
    target = torch.randint(1000, (64,)).to("spmdx")
    spmdx.mark_sharding(logits, mesh, ("data", None))
    spmdx.mark_sharding(target, mesh, ("data",))
    settled()
    loss = F.cross_entropy(logits, target)
    loss.backward()
    report = spmdx.explain(loss)
    assert set(kinds(report)) == {"all_reduce"}
    assert report.wire_bytes <= reduced(2, group)
