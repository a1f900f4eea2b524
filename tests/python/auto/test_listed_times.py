# SPDX-License-Identifier: Apache-2.0
"""Times that a search lists of strategies it did not plan, beside what their plans say."""

import dataclasses
import sys

import pytest
import spmdx
import torch
from torch import nn
from torch.nn import functional

SAMPLES, CLASSES, TABLES, ROWS = 32, 5, 3, 512


class Tables(nn.Module):
    """Large embeddings, whose gradients are sent as rows once, and added up whole often."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, 32) for _ in range(TABLES))
        self.head = nn.Sequential(nn.Linear(TABLES * 32, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, ids):
        found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        return self.head(torch.cat(found, 1))


def normed():
    """Batch norm sums over all samples of a microbatch, so each one costs exchanges."""
    layers = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    layers += [nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


MODELS = {
    "tables": (Tables, lambda: torch.randint(ROWS, (SAMPLES, TABLES))),
    "normed": (normed, lambda: torch.randn(SAMPLES, 3, 10, 10)),
}


def program(name):
    """A step of microbatches, its model and optimizer, and its batch."""
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model = make().to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batches):
        for x, y in batches:
            (functional.cross_entropy(model(x), y) / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, model, optimizer, (inputs(), torch.randint(CLASSES, (SAMPLES,)))


@pytest.mark.parametrize("name", MODELS)
def test_strategies_stand_as_their_plans_would(name, benchmark):
    level = spmdx.Topology.named("gloo").levels[0]
    shared = dataclasses.replace(level, processor_usage=1.0)
    spmdx.set_topology(spmdx.Topology("shared", (shared,), processors=2, record_ns=8000))
    listed = spmdx.auto.search(*program(name), devices=4).candidates
    listed = [c for c in listed if c.step_ns <= 10 * listed[0].step_ns]
    assert len(listed) > 40 and not all(c.planned for c in listed)
    chosen = listed[:: max(1, len(listed) // 40)]
    planned = [spmdx.auto.predict(c.strategy, *program(name)).step_ns for c in chosen]
    spearman = sys.modules["strategy_report"].spearman
    assert spearman([c.step_ns for c in chosen], planned) >= 0.95
    assert min(planned) >= 0.95 * listed[0].step_ns
