# SPDX-License-Identifier: Apache-2.0
"""Training loops as people write them: gradients of microbatches add up before each step."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from pipeline_models import Case
from torch import nn


def nothing(*_):
    """What a program does that knows of no mesh."""


@dataclass(frozen=True)
class Program:
    """What the loops run: `microbatches` of almost equally many rows a batch."""

    case: Case
    model: nn.Module  # on the device already
    device: str  # "cpu" or "spmdx"
    batches: list  # on the CPU; a tuple of inputs and a target for every step
    microbatches: int
    end_of_step: Callable[[], None] = nothing
    mark: Callable[[torch.Tensor], None] = nothing  # each tensor of a microbatch, once it is there

    def place(self, tensor):
        placed = tensor.to(self.device)
        self.mark(placed)
        return placed

    def losses(self, batch):
        """The loss of each microbatch, weighted so that they add up to that of the batch."""
        inputs, target = batch
        parts = [t.tensor_split(self.microbatches) for t in (*inputs, target)]
        for *xs, y in zip(*parts, strict=True):
            output = self.model(*map(self.place, xs))
            yield self.case.loss(output, self.place(y)) * (len(y) / len(target))

    def accumulate(self, batch, scale=lambda loss: loss):
        """Forward and backward of all microbatches; their losses."""
        losses = []
        for loss in self.losses(batch):
            scale(loss).backward()
            losses.append(loss.detach())
        return losses


@dataclass
class Trace:
    """What a loop gave, on the CPU from `finish` on."""

    losses: list = field(default_factory=list)  # for every step those of its microbatches
    gradients: list = field(default_factory=list)  # a dict by name for every step
    parameters: dict = field(default_factory=dict)  # at the end, with buffers

    def keep(self, losses, model, end_of_step):
        """Ends a step, before its gradients are dropped."""
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        end_of_step()
        self.losses.append([loss.cpu() for loss in losses])
        self.gradients.append({n: g.detach().cpu().clone() for n, g in gradients.items()})

    def finish(self, model):
        self.parameters = {n: t.detach().cpu() for n, t in model.state_dict().items()}
        return self


def adamw(model):
    # eps: a gradient that is zero but for rounding stays near zero.
    return torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)


def accumulated(program):
    """Gradient accumulation alone."""
    trace, optimizer = Trace(), adamw(program.model)
    for batch in program.batches:
        losses = program.accumulate(batch)
        optimizer.step()
        trace.keep(losses, program.model, program.end_of_step)
        optimizer.zero_grad()
    return trace.finish(program.model)


def clipped(program):
    """The norm of all gradients, which may be in several stages."""
    trace, optimizer = Trace(), adamw(program.model)
    for batch in program.batches:
        losses = program.accumulate(batch)
        nn.utils.clip_grad_norm_(program.model.parameters(), 0.1)
        optimizer.step()
        trace.keep(losses, program.model, program.end_of_step)
        optimizer.zero_grad()
    return trace.finish(program.model)


def scheduled(program):
    """A learning rate that rises, then falls."""
    trace, optimizer = Trace(), adamw(program.model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, len(program.batches) + 1)
    for batch in program.batches:
        losses = program.accumulate(batch)
        optimizer.step()
        scheduler.step()
        trace.keep(losses, program.model, program.end_of_step)
        optimizer.zero_grad()
    return trace.finish(program.model)


def momentum(program):
    """Gradients that stay in their memory from step to step."""
    trace, parameters = Trace(), program.model.parameters()
    # With foreach, Nesterov's step would be written to the gradients, which are compared.
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=False)
    for batch in program.batches:
        losses = program.accumulate(batch)
        optimizer.step()
        trace.keep(losses, program.model, program.end_of_step)
        optimizer.zero_grad(set_to_none=False)
    return trace.finish(program.model)


def scaled(program):
    """Autocast to bfloat16; the scaler of the losses reads whether gradients overflow."""
    trace, optimizer = Trace(), adamw(program.model)
    scaler = torch.amp.GradScaler(program.device, init_scale=256.0, growth_interval=2)
    for batch in program.batches:
        with torch.autocast(program.device, dtype=torch.bfloat16):
            losses = program.accumulate(batch, scaler.scale)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(program.model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        trace.keep(losses, program.model, program.end_of_step)
        optimizer.zero_grad()
    return trace.finish(program.model)


def evaluated(program):
    """No backward pass; dropout is off."""
    trace = Trace()
    program.model.eval()
    for batch in program.batches:
        with torch.no_grad():
            losses = list(program.losses(batch))
        trace.keep(losses, program.model, program.end_of_step)
    program.model.train()
    return trace.finish(program.model)


LOOPS = {f.__name__: f for f in (accumulated, clipped, scheduled, momentum, scaled, evaluated)}
# Autocast leaves float64 alone.
DTYPES = {name: torch.float32 if name == "scaled" else torch.float64 for name in LOOPS}
