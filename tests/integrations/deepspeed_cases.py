# SPDX-License-Identifier: Apache-2.0
"""A model that configs of DeepSpeed train, and the loop that a config stands for."""

import torch

STEPS, WIDE = 6, 24
ADAM = {"type": "Adam", "params": {"lr": 0.02, "betas": [0.8, 0.99], "weight_decay": 0.1}}
WARMUP = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.05, "warmup_num_steps": 4}}


def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, WIDE), torch.nn.GELU(), torch.nn.Linear(WIDE, 5))


def batches(rows, count):
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(count, rows, 6, generator=drawn)
    return [(one, one[:, :5].sin()) for one in x]


def loss_of(out, y):
    return (out.float() - y).square().mean()


def train(engine, data):
    losses = []
    for x, y in data:
        loss = loss_of(engine(x.to(engine.device)), y.to(engine.device))
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def plain(parts=1, rows=24, clip=0.0, rate=None, dtype=None, make_optimizer=None, skip=0):
    """The loop that a config stands for, in plain PyTorch on the CPU."""
    model = make().to(dtype)
    masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]
    adam = lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.99), weight_decay=0.1)  # noqa: E731
    optimizer = (make_optimizer or adam)(masters)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups if rate else ():
            group["lr"] = rate(step)
        for x, y in batches(rows // parts, STEPS * parts)[step * parts : (step + 1) * parts]:
            loss = loss_of(model(x.to(dtype)), y)
            (loss / parts).backward()
            losses.append(loss.item())
            for master, p in zip(masters, model.parameters(), strict=True):
                new = p.grad.float()
                master.grad = new if master.grad is None else master.grad + new
                p.grad = None
        if clip:
            torch.nn.utils.clip_grad_norm_(masters, clip)
        if step >= skip:
            optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters(), strict=True):
                p.copy_(master)
    return losses
