# SPDX-License-Identifier: Apache-2.0
"""One stage of a pipeline fails in the midst of a step's microbatches.

    fail_in_a_stage.py HOW STAGE

HOW is ``killed``, ``stopped`` or ``raises``. The process of that stage does it in the backward pass
of the second microbatch of the second step, before it has sent on the last one's forward pass: no
other process can end the step.
"""

import os
import signal
import sys

import spmdx
import torch
from torch import nn

HOW, STAGE = sys.argv[1], int(sys.argv[2])
COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("pipe",))
CALLS = 0  # of the op, in this process, from the second step on
FAILING = False


@torch.library.custom_op("fail_in_a_stage::same", mutates_args=())
def same(x: torch.Tensor, stage: int) -> torch.Tensor:
    global CALLS
    if FAILING and stage == STAGE:
        CALLS += 1
        if CALLS == 2 and HOW == "raises":
            raise ValueError("no more")
        if CALLS == 2:
            os.kill(os.getpid(), {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}[HOW])
    return x.clone()


same.register_fake(lambda x, stage: torch.empty_like(x))
spmdx.register_rule("fail_in_a_stage::same", "d->d")


class Layer(nn.Module):
    def __init__(self, stage):
        super().__init__()
        self.stage, self.linear = stage, nn.Linear(8, 8)
        self.linear.weight.register_hook(self.passed_on)

    def forward(self, x):
        return torch.tanh(self.linear(x))

    def passed_on(self, grad):
        return torch.ops.fail_in_a_stage.same(grad.flatten(), self.stage).view_as(grad)


def step(model: nn.Module) -> float:
    total = 0.0
    for _ in range(4):
        loss = model(torch.ones(4, 8).to("spmdx")).square().mean()
        loss.backward()
        total = total + loss.detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    spmdx.mark_step()
    return total.item()


def main() -> None:
    global FAILING
    torch.manual_seed(0)
    with torch.device("spmdx"):
        model = nn.Sequential(*(Layer(stage) for stage in range(COUNT)))
    spmdx.nn.pipeline(model, MESH, cuts=[str(stage) for stage in range(1, COUNT)])
    print("loss", step(model), flush=True)
    FAILING = True
    print("lost", step(model), flush=True)


main()
