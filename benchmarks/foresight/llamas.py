# SPDX-License-Identifier: Apache-2.0
"""Llama 3 as Meta and torchtitan lay it out, written for one device (``benchmarks/llama.py``)."""

import pathlib
import sys
from functools import partial

import spmdx
import torch
import torch.nn.functional as F
from megatron import between
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from llama import COLUMNS, ROWS, Config, Llama  # noqa: E402

SMALL = Config(context=8192)  # 8 billion parameters
LARGE = Config(126, 16384, 128, 8, 53248, 128256, 8192)  # 405 billion

PLAN = {
    "tokens.weight": ("model", None),
    "head.weight": ("model", None),
    **{f"*.{name}.weight": ("model", None) for name in COLUMNS},
    **{f"*.{name}.weight": (None, "model") for name in ROWS},
}


class Saved:
    """What torchtitan's selective checkpointing keeps: attention, and every second product."""

    def __init__(self):
        self.products = 0

    def __call__(self, context, op, *args, **kwargs):
        if op is torch.ops.aten.mm.default:
            self.products += 1
            return CheckpointPolicy.PREFER_RECOMPUTE if self.products % 2 else self.saved
        return self.saved if "attention" in str(op) else CheckpointPolicy.PREFER_RECOMPUTE

    saved = CheckpointPolicy.MUST_SAVE


def selectively(block, *args):
    """A block whose backward pass computes some of it again."""
    contexts = partial(create_selective_checkpoint_contexts, Saved())
    return checkpoint(block, *args, use_reentrant=False, context_fn=contexts)


class Selective(torch.nn.Module):
    """A block that is checkpointed selectively."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *args):
        return selectively(self.block, *args)


def predicted(config, strategy, samples, hardware, topology, selective=False):
    """The candidate that a training step with AdamW is, of a batch of ``samples`` sequences."""
    with spmdx.plan_only():
        with torch.device("spmdx"):
            model = Llama(config).to(torch.bfloat16)
        model.residual = lambda x: between(x, model.tokens.weight, True)
        if selective:
            model.blocks = torch.nn.ModuleList(map(Selective, model.blocks))
        optimizer = torch.optim.AdamW(model.parameters())

        def step(batches):
            for ids in batches:
                logits = model(ids[:, :-1]).flatten(0, 1)
                (F.cross_entropy(logits, ids[:, 1:].flatten()) / len(batches)).backward()
            optimizer.step()

        batch = torch.empty(samples, config.context + 1, dtype=torch.long, device="meta")
        return spmdx.auto.predict(
            strategy, step, model, optimizer, batch, hardware=hardware, topology=topology
        )
