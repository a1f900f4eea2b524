# SPDX-License-Identifier: Apache-2.0
"""An axis that cuts sequences: a GPT trains as on one device, whatever else is cut beside it."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from spmdx.auto import Strategy
from torch import nn

spmdx.runtime.set_device_count(8)
VOCAB, WIDTH, LENGTH = 32, 16, 12
TENSOR = {"*.qkv.weight": ("model", None), "*.out.weight": (None, "model")}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (4, 3, -1)).permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        return self.head(self.blocks(self.tokens(ids) + self.places.weight))


def trained(batches_of, device, mark=lambda model, optimizer: None):
    torch.manual_seed(0)
    model = Gpt().double().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    mark(model, optimizer)
    for at in range(3):
        torch.manual_seed(at)
        parts = batches_of(torch.randint(VOCAB, (8, LENGTH)))
        for ids in parts:
            (F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()) / len(parts)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(context=2),
        Strategy(context=3),
        Strategy(context=4, microbatches=2),
        Strategy(context=8),  # uneven
        Strategy(data=2, context=2, zero=3),
        Strategy(data=2, context=2, model=2, plan=TENSOR),
        Strategy(context=2, model=2, plan=TENSOR, sequence=True),
        Strategy(pipe=2, data=2, context=2, microbatches=4, schedule="1f1b", stages=["blocks.2"]),
    ],
    ids=lambda s: " ".join(f"{name}={size}" for name, size in s.axes.items()),
)
def test_a_gpt_trains_as_on_one_device(strategy):
    mesh = strategy.mesh()

    def batches_of(ids):
        parts = spmdx.auto.split(ids, strategy.microbatches)
        return [strategy.mark_batch(part, mesh) for part in parts]

    def on_host(ids):
        return spmdx.auto.split(ids, strategy.microbatches)

    wanted = trained(on_host, "cpu")
    found = trained(batches_of, "spmdx", lambda *what: strategy.mark(*what, mesh))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_what_it_takes_is_predicted_and_activations_are_cut():
    step, model = made()
    ids = torch.randint(VOCAB, (2048, LENGTH))
    one, four = (
        spmdx.auto.predict(Strategy(context=n), step, model, batch=ids, topology="in-process")
        for n in (1, 4)
    )
    assert four.strategy.family == "context" and four.wire_bytes > one.wire_bytes == 0
    assert four.peak_bytes < one.peak_bytes / 2 and four.step_ns < one.step_ns / 2


def made():
    model = Gpt().to("spmdx")

    def step(batches):
        for ids in batches:
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()

    return step, model
