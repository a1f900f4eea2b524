# SPDX-License-Identifier: Apache-2.0
"""Recurrent nets: batches cut, and weights cut by the rows of their gates."""

import functools

import torch.nn.functional as F
from program_row import F32, Row, exchanged, gathered, integers, marked, reduced, scattered, trained
from torch import nn

LINE = {"x": 8}
WIDTH, BATCH, STEPS, WORDS = 512, 256, 8, 1000
KINDS = {"LSTM": (nn.LSTM, 4), "GRU": (nn.GRU, 3)}


class Net(nn.Module):
    """An embedding, two recurrent layers, a head."""

    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.recurrent = kind(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        return self.head(self.recurrent(self.embedding(ids))[0])


def run(mesh, kind, cut, batch):
    model = Net(kind).to("spmdx")
    for p in model.recurrent.parameters() if cut else ():
        marked(mesh, p, "x")

    def loss(m):
        ids, labels = (marked(mesh, integers(BATCH, STEPS), batch) for _ in "xy")
        return F.cross_entropy(m(ids).flatten(0, 1), labels.flatten())

    return trained(model, loss, steps=2)


def rows():
    found, tables = [], reduced(2 * WORDS * WIDTH * F32, 8)
    for name, (kind, gates) in KINDS.items():
        weights = 2 * 2 * gates * WIDTH * WIDTH * F32
        whole = functools.partial(run, kind=kind, cut=False, batch="x")
        why = "AR P"
        found.append(Row(f"{name}, batch cut", LINE, whole, reduced(weights, 8) + tables, why))
        # Weights are gathered once, forward and backward, and their gradients scattered. Or each
        # step gathers the state of each layer and scatters its gradient; then gates are laid out
        # anew, so that a device has its part of each, and rows of the head's gradients exchanged.
        state = BATCH * STEPS * WIDTH * F32
        stepwise = 4 * gathered(state, 8) + exchanged(state, 8) + 2 * weights / 8
        least = min(gathered(weights, 8) + scattered(weights, 8), stepwise) + tables
        for batch in ("x", None):
            cut = functools.partial(run, kind=kind, cut=True, batch=batch)
            title = f"{name}, gates cut, batch " + ("cut" if batch else "whole")
            found.append(Row(title, LINE, cut, least, "AG + RS of weights or of states + AR rest"))
    return found
