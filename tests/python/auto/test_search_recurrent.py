# SPDX-License-Identifier: Apache-2.0
"""Recurrent nets: what is alike within one is cut alike, so that less is tried."""

import pytest
import spmdx
import torch
from spmdx._auto.cuts import choices_of
from spmdx._pipelines.units import units_of
from torch import nn

pytestmark = pytest.mark.usefixtures("double_precision")


class Net(nn.Module):
    """A recurrent net of two layers and directions."""

    def __init__(self):
        super().__init__()
        self.net, self.head = (
            nn.LSTM(8, 8, 2, bidirectional=True, batch_first=True),
            nn.Linear(16, 8),
        )

    def forward(self, x):
        return self.head(self.net(x)[0])


def training(device):
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(batches):
        for batch in batches:
            ((model(batch) - 1).square().mean() / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def test_layers_and_directions_of_a_recurrent_net_are_cut_alike():
    model = Net()
    choices, _ = choices_of(model, units_of(model, 2), [torch.Size((4, 3, 8))])
    own = [set(c.names) for c in choices if any(n.startswith("net.") for n in c.names)]
    ends = [f"l{layer}{way}" for layer in (0, 1) for way in ("", "_reverse")]
    assert {f"net.weight_hh_{end}" for end in ends} in own
    assert {"net.weight_ih_l0", "net.weight_ih_l0_reverse"} in own
    assert {"net.weight_ih_l1", "net.weight_ih_l1_reverse"} in own
    assert len(own) == 3


@pytest.mark.parametrize("family", ["tensor", "hybrid"])
def test_a_recurrent_net_trains_as_on_one_device(family):
    batch = torch.linspace(-2, 2, 4 * 3 * 8).sin().reshape(4, 3, 8)
    model, optimizer, step = training("spmdx")
    plan = spmdx.auto.search(step, model, optimizer, batch, devices=4)
    chosen = next(c.strategy for c in plan.candidates if c.strategy.family == family)
    mesh = chosen.mesh()
    chosen.mark(model, optimizer, mesh)
    expected, _, on_one = training("cpu")
    for _ in range(3):
        parts = spmdx.auto.split(batch, chosen.microbatches)
        step([chosen.mark_batch(part, mesh) for part in parts])
        on_one(parts)
    for name, value in expected.state_dict().items():
        made = model.state_dict()[name].cpu()
        torch.testing.assert_close(made, value, rtol=1e-9, atol=1e-9, msg=name)
