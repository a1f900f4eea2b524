# SPDX-License-Identifier: Apache-2.0
"""Experts, each of which sees the rows that choose it: how many these are differs from step to
step."""

import torch
from torch import nn


class Experts(nn.Module):
    """Each row goes to its best expert."""

    def __init__(self, width, hidden, count):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
            for _ in range(count)
        )

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        best, out = weights.argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (best == number).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, number, None])
        return out
