# SPDX-License-Identifier: Apache-2.0
"""Random training loops over microbatches, placed over random devices, equal those of one device.

What is drawn: layers, dropout, which weights are frozen or cut along a second axis, microbatches
and backward passes, optimizers, clipping, a schedule of learning rates, and devices whose speeds
change between two steps.
"""

import random

import pytest
import spmdx
import torch
from torch import nn

A_TEST, STEPS = 6, 3
MESHES = ((2,), (3,), (4,), (5,), (8,), (2, 2), (4, 2))
OPTIMIZERS = {
    "plain": lambda p: torch.optim.SGD(p, lr=0.05),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, foreach=False),
    "AMSGrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "of many": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


class Net(nn.Module):
    """Layers of some width; `extras` of them normalise, drop out or are used twice."""

    def __init__(self, width, extras):
        super().__init__()
        self.extras = extras
        self.into, self.inner = nn.Linear(12, width), nn.Linear(width, width)
        self.out = nn.Linear(width, 4)
        self.norm = nn.LayerNorm(width) if "norm" in extras else nn.Identity()
        self.batch_norm = nn.BatchNorm1d(width) if "batch norm" in extras else nn.Identity()

    def forward(self, x):
        x = self.batch_norm(self.norm(nn.functional.gelu(self.into(x))))
        if "dropout" in self.extras:
            x = nn.functional.dropout(x, 0.3, True)
        x = x + torch.tanh(self.inner(x))
        return self.out(torch.relu(self.inner(x)) if "twice" in self.extras else x)


class Loop:
    """A loop that is drawn; equal seeds are equal loops."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed, self.shape = seed, draw.choice(MESHES)
        self.rates = [draw.choice([1, 1, 2, 3, 5]) for _ in range(self.shape[0])]
        self.unit = draw.choice([1e6, 1e7, 1e9])  # sends take much less time than work, or more
        self.parts = draw.choice([2, 3, 5, 8, 13])
        self.rows = self.parts * draw.choice([2, 4, 6]) + draw.choice([0, 0, 1])
        self.width = draw.choice([8, 16, 24])
        self.extras = draw.sample(["norm", "batch norm", "dropout", "twice"], draw.randrange(3))
        if self.rows % self.parts:  # a part of one row has no variance
            self.extras = [extra for extra in self.extras if extra != "batch norm"]
        self.optimizer = draw.choice([*OPTIMIZERS])
        self.passes = draw.choice(["one", "two", "each"])
        self.frozen, self.clips, self.scheduled = (draw.random() < 0.3 for _ in range(3))
        self.speeds_change = draw.random() < 0.3
        self.cut = draw.choice([None, ("data", None), (None, "data")])
        self.batch = draw.choice([("data", None), (None, None)])

    def mesh(self, rates):
        each = self.shape[1] if len(self.shape) > 1 else 1
        names = [f"cpu@{i // each}" for i in range(each * len(rates))]
        told = {
            f"cpu@{i}": spmdx.Hardware(f"cpu@{i}", {"f64": rate * self.unit}, rate * self.unit)
            for i, rate in enumerate(rates)
        }
        spmdx.runtime.set_devices(names + ["cpu@0"] * (8 - len(names)), hardware=told)
        mesh = spmdx.Mesh(range(len(names)), self.shape, ("kind", "data")[: len(self.shape)])
        spmdx.auto.place(mesh, "kind")
        return mesh

    def run(self, device, placed):
        """Losses, norms, parameters, buffers and gradients."""
        torch.manual_seed(self.seed)
        model = Net(self.width, self.extras).double()
        model.inner.bias.requires_grad_(not self.frozen)
        x, targets = torch.randn(self.rows, 12).double(), torch.randn(self.rows, 4).double()
        model, x, targets = model.to(device), x.to(device), targets.to(device)
        if placed:
            mesh, two = self.mesh(self.rates), len(self.shape) > 1
            for tensor in (x, targets):
                spmdx.mark_sharding(tensor, mesh, self.batch if two else (None, None))
            if two and self.cut:
                spmdx.mark_sharding(model.inner.weight, mesh, self.cut)
        return self.train(model, x, targets, placed)

    def train(self, model, x, targets, placed):
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = OPTIMIZERS[self.optimizer](trained)
        rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7 if self.scheduled else 1.0)
        torch.manual_seed(self.seed)
        found = []
        for step in range(STEPS):
            optimizer.zero_grad()
            found += self.terms(model, x, targets)
            if self.clips:
                found.append(nn.utils.clip_grad_norm_(trained, 0.5).detach())
            optimizer.step()
            rates.step()
            if placed:
                spmdx.mark_step()
            if self.speeds_change and step == 0:
                found = [value.cpu() for value in found]
                if placed:
                    self.mesh(self.rates[::-1])
        found += [p.grad for p in trained]
        return [value.detach().cpu() for value in (*found, *model.state_dict().values())]

    def terms(self, model, x, targets):
        terms = []
        for part, target in zip(x.chunk(self.parts), targets.chunk(self.parts), strict=True):
            terms.append(nn.functional.mse_loss(model(part), target) / self.parts)
            if self.passes == "each":
                terms[-1].backward()
        half = len(terms) // 2
        for some in {"one": [terms], "two": [terms[:half], terms[half:]]}.get(self.passes, []):
            if some:
                sum(some).backward()
        return [term.detach() for term in terms]


@pytest.mark.parametrize("first", range(0, 4 * A_TEST, A_TEST))
def test_placed_loops_equal_those_of_one_device(first):
    spread = 0
    for seed in range(first, first + A_TEST):
        loop = Loop(seed)
        one = "spmdx" if "dropout" in loop.extras else "cpu"  # whose random numbers are others
        expected = loop.run(one, False)
        found = loop.run("spmdx", True)
        placement = spmdx.explain().placement
        spread += placement is not None and len({s.coordinate for s in placement.segments}) > 1
        if placement is not None:
            assert placement.least_ns <= min([placement.step_ns, *placement.alone_ns])
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(
                mine, theirs, rtol=1e-7, atol=1e-8, msg=lambda said, s=seed: f"loop {s}: {said}"
            )
        spmdx.auto.place(None)
        spmdx.runtime.set_devices([])
    assert spread > 0
