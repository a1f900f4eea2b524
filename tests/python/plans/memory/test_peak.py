# SPDX-License-Identifier: Apache-2.0
"""The predicted peak of memory is what a run holds, within a twentieth."""

import models
import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn

MODES = {
    "one": (models.Plan((1,), ("data",)), False),
    "dp": (models.Plan((4,), ("data",)), False),
    "fsdp": (models.Plan((4,), ("data",), fully_sharded=True), False),
    "tp": (models.Plan((4,), ("model",)), True),
    "dp_tp": (models.Plan((2, 2), ("data", "model")), True),
}


class Wide(nn.Module):
    """A small model with the proportions of a real one: only what it holds matters here."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        if kind == "mlp":
            sizes = [64, 256, 256, 256, 10]
            pairs = zip(sizes, sizes[1:], strict=False)
            self.net = nn.Sequential(*(m for a, b in pairs for m in (nn.Linear(a, b), nn.GELU())))
        elif kind == "cnn":
            self.net = nn.Sequential(
                nn.Conv2d(3, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(32, 64, 3, padding=1),
                nn.BatchNorm2d(64),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(1),
                nn.Linear(64, 10),
            )
        else:
            self.net = models.GPT(
                models.Config(vocab=96, layers=3, width=64, heads=4, context=32, dropout=0.0)
            )

    def forward(self, x):
        return self.net(x)


BATCHES = {
    "mlp": lambda: (torch.randn(32, 64), torch.randint(10, (32,))),
    "cnn": lambda: (torch.randn(16, 3, 16, 16), torch.randint(10, (16,))),
    "gpt": lambda: (torch.randint(96, (8, 32)), torch.randint(96, (8, 32))),
}
# What tensor parallel cuts: every other linear layer by its outputs, the next by its inputs.
COLUMNS = ("net.0.", "net.4.", "attention.q.", "attention.k.", "attention.v.", "up.")
ROWS = ("net.2.weight", "net.6.weight", "attention.out.weight", "down.weight")


def annotate(model, mesh, plan, tensor_parallel):
    for name, p in model.named_parameters():
        if plan.fully_sharded:
            spmdx.mark_sharding(p, mesh, ("data",) + (None,) * (p.dim() - 1))
        elif tensor_parallel and any(part in name for part in COLUMNS):
            spmdx.mark_sharding(p, mesh, ("model",) + (None,) * (p.dim() - 1))
        elif tensor_parallel and any(part in name for part in ROWS):
            spmdx.mark_sharding(p, mesh, (None, "model") + (None,) * (p.dim() - 2))


def peaks(kind, mode):
    """(predicted, measured) bytes of a device that holds most, in a training step that repeats."""
    plan, tensor_parallel = MODES[mode]
    torch.manual_seed(0)
    mesh = plan.mesh()
    model = Wide(kind).to("spmdx")
    annotate(model, mesh, plan, tensor_parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    spmdx._C.set_checks(memory=True)
    try:
        for _ in range(3):
            x, y = (t.to("spmdx") for t in BATCHES[kind]())
            if "data" in plan.axes:
                for t in (x, y):
                    spmdx.mark_sharding(t, mesh, ("data",) + (None,) * (t.dim() - 1))
            output = model(x)
            F.cross_entropy(output.flatten(0, -2), y.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.sync(wait=True)
        return spmdx.explain().peak_bytes, max(spmdx.explain().memory.measured)
    finally:
        spmdx._C.set_checks()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", BATCHES)
def test_the_predicted_peak_is_within_a_twentieth_of_the_measured_one(kind, mode):
    predicted, measured = peaks(kind, mode)
    assert measured > 0
    assert abs(predicted - measured) <= 0.05 * measured, (
        f"{predicted:,} predicted, {measured:,} held"
    )
