# SPDX-License-Identifier: Apache-2.0
"""Of how many microbatches a stage keeps activations, measured, beside the closed forms."""

import functools

import pytest
import spmdx
import torch
from torch import nn

ROWS, WIDTH = 512, 32
KEPT = 2 * ROWS * WIDTH * 4  # bytes of a microbatch in a layer: what comes in, and tanh's result


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.product = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return torch.tanh(self.product(x))


@functools.cache
def peaks(p, m, schedule, chunks):
    """What the devices held at most in a step, in bytes, and the stages' activations, predicted."""
    mesh = spmdx.Mesh(range(p), (p,), ("pipe",))
    model = nn.Sequential(*(Layer() for _ in range(p * chunks))).to("spmdx")
    cuts = [str(layer) for layer in range(1, p * chunks)]
    spmdx.nn.pipeline(model, mesh, cuts=cuts, schedule=schedule, chunks=chunks)
    x = torch.ones(ROWS, WIDTH, device="spmdx")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    spmdx._C.set_checks(memory=True)
    try:
        for _ in range(2):
            for i in range(m):
                (model(x * (i + 1)).square().mean() / m).backward()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.sync(wait=True)
        pipeline = spmdx.explain().pipeline
        return spmdx.explain().memory.measured, [stage.in_flight for stage in pipeline.stages]
    finally:
        spmdx._C.set_checks()


def halves(p, m, schedule, chunks=1):
    """Of what a microbatch keeps in a layer, what the devices hold more than with one of them."""
    alone, _ = peaks(p, 1, schedule, chunks)
    together, _ = peaks(p, m, schedule, chunks)
    return [(b - a) // (KEPT // 2) for a, b in zip(alone, together, strict=True)]


def kept(p, m, schedule):
    """Measured; what came in early for the next microbatch, which is a half, does not count."""
    return [more // 2 + 1 for more in halves(p, m, schedule)]


@pytest.mark.parametrize("m", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize(
    "schedule, formula",
    [
        ("gpipe", lambda p, m, i: m),
        ("1f1b", lambda p, m, i: min(m, p - i)),
        ("zb-h1", lambda p, m, i: min(m, p)),
    ],
    ids=["gpipe", "1f1b", "zb-h1"],
)
@pytest.mark.filterwarnings("ignore:.*one microbatch")
def test_activations_in_flight_are_those_of_the_schedule(schedule, formula, p, m):
    wanted = [formula(p, m, i) for i in range(p)]
    assert kept(p, m, schedule) == wanted
    assert peaks(p, m, schedule, 1)[1] == wanted


@pytest.mark.parametrize("p, m", [(2, 4), (2, 8), (4, 8)])
@pytest.mark.filterwarnings("ignore:.*one microbatch")
def test_interleaved_stages_keep_those_of_both_chunks(p, m):
    """D. Narayanan et al., "Efficient large-scale language model training", SC 2021, figure 4."""
    for i, more in enumerate(halves(p, m, "interleaved:2", 2)):
        in_flight = 2 * (p - i - 1) + p + 1
        assert 0 <= more - 2 * (in_flight - 2) <= 3  # halves that came in early, for two chunks
