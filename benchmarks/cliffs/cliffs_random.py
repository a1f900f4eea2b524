# SPDX-License-Identifier: Apache-2.0
"""Random numbers, which are the same on every mesh, and not those of the host."""

import torch
import torch.nn.functional as F
from cliff_row import Goal, Rows, with_sgd
from torch import nn

ROWS = Rows()
DRAWN = Goal(factor=3.0)
M = 1 << 20

DRAWS = {
    "randn": lambda device: torch.randn(M, device=device),
    "rand": lambda device: torch.rand(M, device=device),
    "randperm": lambda device: torch.randperm(M // 4, device=device),
    "randint": lambda device: torch.randint(100, (M,), device=device),
    "bernoulli": lambda device: torch.bernoulli(torch.full((M,), 0.3, device=device)),
    "normal_ in place": lambda device: torch.empty(M, device=device).normal_(1.0, 2.0),
    "exponential_": lambda device: torch.empty(M, device=device).exponential_(),
    "multinomial": lambda device: torch.multinomial(torch.ones(256, 1024, device=device), 4),
}
for name, draw in DRAWS.items():
    ROWS.add(
        name,
        "1 Mi numbers" if name not in ("randperm", "multinomial") else "256 Ki numbers",
        lambda at, draw=draw: lambda: draw(at.device),
        goal=DRAWN,
        compared=False,
    )


@ROWS.add("dropout, forward and backward", "f32[1024, 1024]", goal=DRAWN, compared=False)
def dropout(at):
    x = at.rows(1024, 1024, grad=True)
    return lambda: torch.autograd.grad(F.dropout(x, 0.1).sum(), x)


@ROWS.add(
    "nn.init", "kaiming, xavier, normal, trunc_normal of 512 x 512", goal=DRAWN, compared=False
)
def initialised(at):
    tensors = [at.whole(512, 512) for _ in range(4)]
    calls = nn.init.kaiming_uniform_, nn.init.xavier_normal_, nn.init.normal_, nn.init.trunc_normal_

    def step():
        for call, tensor in zip(calls, tensors, strict=True):
            call(tensor)
        return tensors

    return step


@ROWS.add("MLP with dropout, training", "4 x 512, batch 256", compared=False)
def mlp(at):
    parts = [(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.1)) for _ in range(4)]
    model = at.model(nn.Sequential(*[m for part in parts for m in part]))
    x = at.rows(256, 512)
    return with_sgd(model, lambda m: m(x).square().mean())


@ROWS.add("diffusion step", "noise added and predicted, 32 x 1024", compared=False)
def diffusion(at):
    model = at.model(nn.Sequential(nn.Linear(1025, 1024), nn.SiLU(), nn.Linear(1024, 1024)))
    x, kept = at.rows(32, 1024), at.put(torch.linspace(0.99, 0.01, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        noise = torch.randn_like(x)
        t = torch.randint(1000, (32,), device=at.device)
        share = kept[t][:, None]
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        loss = F.mse_loss(model(torch.cat([noisy, t[:, None] / 1000], 1)), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
