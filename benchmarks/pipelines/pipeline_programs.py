# SPDX-License-Identifier: Apache-2.0
"""A training step of a GPT in one process, and in stages by torch.distributed.pipelining."""

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

sys.path.insert(0, str(Path(__file__).parents[1]))
from nanogpt import GPT, Config, token_mean  # noqa: E402

CONFIG = Config(layers=6, width=384, heads=6, context=256)
ROWS = 2  # of a microbatch


def build_model():
    """The same in every process. Its head is not tied: the peer has no word for that."""
    torch.manual_seed(0)
    model = GPT(CONFIG)
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    return model


def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)


def first_blocks(stages):
    """By stage its first block, and behind the last stage the number of all."""
    return [round(CONFIG.layers * stage / stages) for stage in range(stages + 1)]


def loss_of(logits, y):
    return token_mean(logits.flatten(0, 1), y.flatten())


def train(program, x, y):
    """A step of the loop that everybody writes; the losses of its microbatches."""
    m, losses = program.microbatches, []
    for xs, ys in zip(x.chunk(m), y.chunk(m), strict=True):
        loss = loss_of(program.model(xs), ys)
        (loss / m).backward()
        losses.append(loss.detach())
    program.optimizer.step()
    program.optimizer.zero_grad()
    return losses


class Single:
    """The loop in one process, the first one; the others wait."""

    def __init__(self, microbatches):
        self.microbatches, self.model = microbatches, build_model()
        self.optimizer = make_optimizer(self.model.parameters())

    def __call__(self, x, y):
        """The losses of the microbatches; none in a process that does not know them."""
        return [] if dist.get_rank() > 0 else train(self, x, y)


class Stage(nn.Module):
    """Some blocks of a GPT, with what comes before the first and after the last."""

    def __init__(self, model, index, stages):
        super().__init__()
        begin, end = first_blocks(stages)[index : index + 2]
        self.blocks = nn.ModuleList(model.blocks[begin:end])
        if index == 0:
            self.tokens, self.positions = model.tokens, model.positions
        if index == stages - 1:
            self.norm, self.head = model.norm, model.head

    def forward(self, x):
        if hasattr(self, "tokens"):
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


class Peer:
    """torch.distributed.pipelining: `chunks` stages in each process, one after the other."""

    def __init__(self, microbatches, schedule, chunks=1):
        rank, world = dist.get_rank(), dist.get_world_size()
        model, stages = build_model(), world * chunks
        indices = range(rank, stages, world)
        self.modules = [Stage(model, i, stages) for i in indices]
        parts = [
            pipelining.PipelineStage(module, i, stages, torch.device("cpu"))
            for module, i in zip(self.modules, indices, strict=True)
        ]
        self.schedule = getattr(pipelining, schedule)(
            parts[0] if chunks == 1 else parts, microbatches, loss_fn=loss_of
        )
        self.is_first, self.is_last = rank == 0, rank == world - 1
        self.optimizer = make_optimizer([p for m in self.modules for p in m.parameters()])

    def __call__(self, x, y):
        losses = []
        target = dict(target=y, losses=losses) if self.is_last else {}
        self.schedule.step(*([x] if self.is_first else []), **target)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return [loss.detach() for loss in losses]


class Ours:
    """The loop of `Single`, on spmdx: names of modules instead of stages and a schedule object."""

    def __init__(self, microbatches, schedule="1f1b", chunks=1):
        import spmdx

        self.microbatches, self.end = microbatches, lambda: spmdx.sync(wait=True)
        world = dist.get_world_size()
        mesh = spmdx.Mesh(range(world), (world,), ("pipe",))
        self.model = build_model().to("spmdx")
        cuts = [f"blocks.{first}" for first in first_blocks(world * chunks)[1:-1]]
        spmdx.nn.pipeline(self.model, mesh, cuts=cuts, schedule=schedule, chunks=chunks)
        self.optimizer = make_optimizer(self.model.parameters())

    def __call__(self, x, y):
        losses = train(self, x.to("spmdx"), y.to("spmdx"))
        self.end()  # every process is timed to the end of its step
        return losses


@dataclass(frozen=True)
class Made:
    """How a program is made for a number of microbatches, and the shortest step that it can have.

    `ideal` is how many times faster than one process it can be at best, without anything sent.
    """

    make: Callable
    ideal: Callable[[int, int], float]  # stages, microbatches


def ideal_of(chunks):
    """Of GPipe and 1F1B: a process waits while the others work on a chunk of one microbatch."""

    def ideal(stages, m):
        begins = first_blocks(stages * chunks)
        blocks = [end - begin for begin, end in itertools.pairwise(begins)]
        longest = max(sum(blocks[stage::stages]) for stage in range(stages))
        return m * CONFIG.layers / (m * longest + (CONFIG.layers - longest) / chunks)

    return ideal


# A program that is added here is timed beside the others: a callable (x, y) -> losses.
PROGRAMS = {
    "single": Made(Single, lambda stages, m: 1.0),
    "1F1B": Made(lambda m: Peer(m, "Schedule1F1B"), ideal_of(1)),
    "GPipe": Made(lambda m: Peer(m, "ScheduleGPipe"), ideal_of(1)),
    "interleaved": Made(lambda m: Peer(m, "ScheduleInterleaved1F1B", chunks=2), ideal_of(2)),
    "spmdx 1f1b": Made(Ours, ideal_of(1)),
    "spmdx gpipe": Made(lambda m: Ours(m, "gpipe"), ideal_of(1)),
    "spmdx zb-h1": Made(lambda m: Ours(m, "zb-h1"), ideal_of(1)),
    "spmdx interleaved": Made(lambda m: Ours(m, "interleaved:2", chunks=2), ideal_of(2)),
}
