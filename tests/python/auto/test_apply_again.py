# SPDX-License-Identifier: Apache-2.0
"""A strategy that is applied takes the place of all that was said of the program before."""

import pytest
import spmdx
import torch
from spmdx.auto import Strategy

WEIGHT = {"0.weight": ("model", None)}
STRATEGIES = {
    "data": Strategy(data=2),
    "zero 1": Strategy(data=4, zero=1, microbatches=2),
    "zero 3": Strategy(data=2, zero=3),
    "tensor": Strategy(model=2, plan=WEIGHT),
    "pipeline": Strategy(pipe=2, schedule="1f1b", stages=["2"], microbatches=2),
    "hybrid": Strategy(data=2, pipe=2, zero=2, schedule="1f1b", stages=["2"], microbatches=2),
    "tensor in stages": Strategy(
        pipe=2, model=2, plan=WEIGHT, schedule="1f1b", stages=["2"], microbatches=2
    ),
}
BATCH = torch.linspace(-2, 2, 8 * 16, dtype=torch.float64).sin().reshape(8, 16)


class Program:
    """A model with a buffer that sums rows, if that is asked for."""

    def __init__(self, device, sums=False):
        torch.manual_seed(0)
        layers = torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16)
        self.model = torch.nn.Sequential(*layers).double().to(device)
        self.sums = sums
        self.model.register_buffer("seen", torch.zeros(16, dtype=torch.float64, device=device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def step(self, batches):
        for x in batches:
            out = self.model(x)
            if self.sums:
                self.model.seen += out.detach().sum(0)
            (out.square().mean() / len(batches)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def apply(self, strategy):
        mesh = strategy.mesh()
        strategy.mark(self.model, self.optimizer, mesh)
        return lambda: [
            strategy.mark_batch(part, mesh)
            for part in spmdx.auto.split(BATCH, strategy.microbatches)
        ]

    def train(self, split, steps=2):
        for _ in range(steps):
            self.step(split())
            spmdx.mark_step()

    def values(self):
        state = [v for s in self.optimizer.state.values() for v in s.values()]
        return [t.detach().cpu() for t in [*self.model.state_dict().values(), *state]]


def said(program):
    """What is annotated, how all lies, and what a step takes."""
    state = [v for s in program.optimizer.state.values() for v in s.values() if v.dim()]
    tensors = [*program.model.parameters(), *program.model.buffers(), *state]
    report = spmdx.explain()
    return (
        [(str(spmdx.get_annotation(t)), str(spmdx.get_sharding(t)), type(t)) for t in tensors],
        (report.step_ns, report.wire_bytes, report.peak_bytes),
    )


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("first", STRATEGIES)
@pytest.mark.parametrize("second", STRATEGIES)
def test_a_strategy_behind_another_trains_as_plain_pytorch(first, second, trained):
    program, plain = Program("spmdx", sums=True), Program("cpu", sums=True)
    split = program.apply(STRATEGIES[first])
    if trained:
        program.train(split)
        plain.train(lambda: [BATCH])
    program.train(program.apply(STRATEGIES[second]))
    plain.train(lambda: [BATCH])
    for found, expected in zip(program.values(), plain.values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("first", STRATEGIES)
@pytest.mark.parametrize("second", STRATEGIES)
def test_a_strategy_behind_another_is_as_by_itself(first, second, trained):
    program, alone = Program("spmdx"), Program("spmdx")
    split = program.apply(STRATEGIES[first])
    if trained:
        program.train(split)
    program.train(program.apply(STRATEGIES[second]))
    found = said(program)
    alone.train(alone.apply(STRATEGIES[second]), 2 + 2 * trained)
    assert found == said(alone)
