# SPDX-License-Identifier: Apache-2.0
"""A training step that is replayed in several processes leaves what the traced one leaves.

    replays.py

Ends with "well", printed by every process, or fails.
"""

import spmdx
import torch
from torch import nn

COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("x",))


def training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 12), nn.Dropout(0.25), nn.GELU(), nn.Linear(12, 3))
    model = model.to("spmdx")
    spmdx.mark_sharding(model[0].weight, MESH, ("x", None))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach()

    return model, step


def main() -> None:
    models, steps = zip(*(training() for _ in range(2)), strict=True)
    functions = steps[0], spmdx.compile(steps[1])
    draw = torch.Generator().manual_seed(1)
    for call in range(24):
        rows = torch.randn(10, 7, generator=draw)
        losses = []
        for function in functions:
            spmdx.manual_seed(call)
            x = spmdx.mark_sharding(rows.to("spmdx"), MESH, ("x", None))
            losses.append(function(x))
            spmdx.mark_step()
        assert torch.equal(losses[0].cpu(), losses[1].cpu()), call
        for a, b in zip(*(model.parameters() for model in models), strict=True):
            assert torch.equal(a.detach().cpu(), b.detach().cpu()), call
            assert torch.equal(a.grad.cpu(), b.grad.cpu()), call
    assert functions[1].replayed >= 15, functions[1].reasons
    print("well")


main()
