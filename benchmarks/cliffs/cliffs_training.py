# SPDX-License-Identifier: Apache-2.0
"""Around a training step: optimizers, clipping, averages, transforms, state, uploads."""

import copy
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from cliff_row import Goal, Rows, trained, with_sgd
from torch import nn
from torch.func import functional_call, grad, vmap

ROWS = Rows()
OPTIMIZERS = (
    "SGD",
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Rprop",
    "ASGD",
)


def perceptron(count=8, width=128):
    layers = [(nn.Linear(width, width), nn.ReLU()) for _ in range(count)]
    return nn.Sequential(*[part for layer in layers for part in layer])


def squares(at, width=128, rows=128):
    x = at.rows(rows, width)
    return lambda m: m(x).square().mean()


for name in OPTIMIZERS:
    for foreach in (True, False):

        @ROWS.add(
            f"{name}, {'foreach' if foreach else 'one by one'}",
            "8 linear layers of 128, batch 128",
            quick=foreach,
        )
        def optimized(at, name=name, foreach=foreach):
            model = at.model(perceptron())
            extra = {"momentum": 0.9} if name == "SGD" else {}
            make = getattr(torch.optim, name)
            optimizer = make(model.parameters(), lr=1e-3, foreach=foreach, **extra)
            return trained(model, optimizer, squares(at))


@ROWS.add("SparseAdam's dense kin: Adam of one embedding", "20,000 words of 64, 1,024 read")
def adam_of_table(at):
    model, ids = at.model(nn.Embedding(20000, 64)), at.ints(20000, 1024)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(model, optimizer, lambda m: m(ids).square().mean())


@ROWS.add("Muon", "8 linear layers of 128 without biases, batch 128")
def muon(at):
    model = at.model(nn.Sequential(*[nn.Linear(128, 128, bias=False) for _ in range(8)]))
    return trained(model, torch.optim.Muon(model.parameters(), lr=1e-3), squares(at))


@ROWS.add("gradients clipped by norm", "8 linear layers of 128, batch 128")
def clipped(at):
    model, loss_of = at.model(perceptron()), squares(at)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        loss = loss_of(model)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@ROWS.add("a learning rate that changes", "AdamW, 8 linear layers of 128")
def scheduled(at):
    model = at.model(perceptron())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    run = trained(model, optimizer, squares(at))

    def step():
        loss = run()
        schedule.step()
        return loss

    return step


@ROWS.add("moving average of weights", "8 linear layers of 256, lerp_")
def average(at):
    model = at.model(perceptron(8, 256))
    kept = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def step():
        for a, p in zip(kept, model.parameters(), strict=True):
            a.lerp_(p, 0.01)
        return kept

    return step


@ROWS.add("AveragedModel", "8 linear layers of 128, trained")
def averaged_model(at):
    model = at.model(perceptron())
    kept, run = torch.optim.swa_utils.AveragedModel(model), with_sgd(model, squares(at))

    def step():
        run()
        kept.update_parameters(model)
        return kept.module[0].weight.detach()

    return step


@ROWS.add("gradients of each sample", "vmap(grad), 64-128-10, 64 samples")
def per_sample(at):
    model, x, y = at.model(nn.Linear(128, 64)), at.rows(64, 128), at.ints(64, 64)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(weights, x, y):
        return F.cross_entropy(functional_call(model, weights, (x[None],)), y[None])

    calls = vmap(grad(loss_of), (None, 0, 0))
    return lambda: list(calls(weights, x, y).values())


@ROWS.add("gradient of a gradient", "3 linear layers of 128, batch 128")
def penalty(at):
    model, x = (
        at.model(nn.Sequential(*[nn.Linear(128, 128), nn.Tanh()] * 2)),
        at.rows(128, 128, grad=True),
    )

    def loss_of(m):
        (g,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return (g.norm(dim=1) - 1).square().mean()

    return with_sgd(model, loss_of)


@ROWS.add("two models in turn, as of a GAN", "64-256-64 and 64-256-1, batch 128")
def adversaries(at):
    made = at.model(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
    judge = at.model(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
    x, noise = at.rows(128, 64), at.rows(128, 64)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-4) for m in (judge, made)]

    def step():
        losses = (
            lambda: F.softplus(-judge(x)).mean() + F.softplus(judge(made(noise).detach())).mean(),
            lambda: F.softplus(-judge(made(noise))).mean(),
        )
        for optimizer, loss_of in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step


@ROWS.add("uploads by a data loader", "8 batches of 64 x 256 of 4 layers", quick=False)
def loader(at):
    model, data = at.model(perceptron(4, 256)), torch.randn(512, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for batch in torch.utils.data.DataLoader(data, 64):
            loss = model(at.put(batch, "x")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            at.end()
        return loss.detach()

    return step


@ROWS.add("evaluation loop, one read at its end", "20 batches of 64 x 256, 4 layers")
def evaluation(at):
    model, data = at.model(perceptron(4, 256)).eval(), torch.randn(20, 64, 256)

    @torch.no_grad()
    def step():
        total = torch.zeros((), device=at.device)
        for batch in data:
            total += model(at.put(batch, "x")).square().sum()
        return torch.tensor(total.item())

    return step


# --- state ----------------------------------------------------------------------------------------


@ROWS.add("load_state_dict, 268 MB", "one weight of 8192 x 8192", quick=False)
def loaded(at):
    model, state = at.model(nn.Linear(8192, 8192, bias=False)), {"weight": torch.zeros(8192, 8192)}

    def step():
        model.load_state_dict(state)

    return step


@ROWS.add("torch.save, 268 MB", "one weight of 8192 x 8192", quick=False)
def saved(at):
    state, folder = {"weight": at.put(torch.zeros(8192, 8192), "x")}, tempfile.TemporaryDirectory()

    def step():
        torch.save(state, Path(folder.name) / "weights.pt")

    return step


@ROWS.add("state_dict there and back", "32 linear layers of 256, copied to the host and loaded")
def round_trip(at):
    model = at.model(perceptron(32, 256))

    def step():
        state = model.state_dict()
        model.load_state_dict({name: p.to("cpu", copy=True) for name, p in state.items()})
        return model[0].weight.detach()

    return step


@ROWS.add("deepcopy of a model", "16 linear layers of 256")
def copied(at):
    model = at.model(perceptron(16, 256))
    return lambda: [p.detach() for p in copy.deepcopy(model).parameters()]


@ROWS.add("a model moved to the device", "32 linear layers of 128, from the host", goal=Goal())
def moved(at):
    model = perceptron(32, 128)
    return lambda: [p.detach() for p in copy.deepcopy(model).to(at.device).parameters()]
