# SPDX-License-Identifier: Apache-2.0
"""Batches of many sizes on devices of several processes, which differ in what they ask in between
and in the files that they find: the CPU's numbers, and one plan of all processes for each.

    other_sizes.py [folder]

In `folder` the last process, and no other, keeps what is decided. Ends with how many plans were
searched for, printed by every process, or fails.
"""

import os
import sys

# Read when spmdx is imported.
FOLDER = sys.argv[1] if len(sys.argv) > 1 else None
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if FOLDER and RANK == WORLD - 1:
    os.environ["SPMDX_CACHE"] = FOLDER

import spmdx  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("x",))


def made(device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12)).double().to(device)
    if device == "spmdx":
        spmdx.mark_sharding(model[0].weight, MESH, ("x", None))
        spmdx.mark_sharding(model[2].weight, MESH, (None, "x"))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x).pow(2).mean()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def placed(rows: torch.Tensor) -> torch.Tensor:
    return spmdx.mark_sharding(rows.to("spmdx"), MESH, ("x", None))


def ask_alone(number: int, model: nn.Module, rows: torch.Tensor) -> None:
    """What one process wants to know of programs that all of them run afterwards."""
    if number % 4 == RANK % 4:
        with spmdx.plan_only():
            loss_of(model, placed(rows)).backward()
            spmdx.mark_step()
        model.zero_grad()


generator = torch.Generator().manual_seed(1)
plain, sharded = made("cpu"), made("spmdx")
for number, size in enumerate([20, 20, *range(21, 45), 61, 30, 8, 7]):
    rows = torch.randn(size, 12, dtype=torch.float64, generator=generator)
    spmdx.mark_step()  # nothing is pending that the question would run
    ask_alone(number, sharded[0], rows)
    got = step(*sharded, placed(rows))
    spmdx.mark_step()
    torch.testing.assert_close(got.cpu(), step(*plain, rows), rtol=1e-9, atol=1e-9)
for ours, theirs in zip(sharded[0].parameters(), plain[0].parameters(), strict=True):
    torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-9, atol=1e-9)
print("searched", spmdx.debug.counters()["plans_searched"], flush=True)
