# SPDX-License-Identifier: Apache-2.0
"""Models that pipelines are tested with: batches, losses, and where stages can begin."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pipeline_convolutions import IMAGE, ResNet, UNet
from pipeline_transformers import CONTEXT, GPT, VOCAB, Experts, Llama, Translator


def tokens(rows):
    return torch.randint(VOCAB, (rows, CONTEXT))


def images(rows):
    return torch.randn(rows, *IMAGE, dtype=torch.float64)


def classified(output, target):
    """The mean over all rows, and over the tokens of each."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


@dataclass(frozen=True)
class Case:
    """A model on the CPU, its batch of so many rows, and modules at which stages begin.

    The loss is a mean over rows, so that those of microbatches add up when weighted by their rows.
    """

    build: Callable[[], torch.nn.Module]
    batch: Callable  # rows -> (tuple of inputs, target)
    cuts: dict[int, list[str]]  # number of stages -> where the second and later ones begin
    loss: Callable = classified
    draws: bool = False  # random numbers, which are other ones on the CPU than on the device


def text(rows):
    return (tokens(rows),), tokens(rows)


BLOCKS = {
    2: ["blocks.2"],
    3: ["blocks.1", "blocks.3"],
    4: ["blocks.1", "blocks.2", "blocks.3"],
}

CASES = {
    "gpt": Case(lambda: GPT(dropout=0.2), text, BLOCKS, draws=True),
    "gpt without dropout": Case(GPT, text, BLOCKS),
    "llama": Case(
        Llama,
        text,
        {2: ["layers.2"], 3: ["layers.1", "layers.2"], 4: ["layers.1", "layers.2", "layers.3"]},
    ),
    "translator": Case(
        Translator,
        lambda rows: ((tokens(rows), tokens(rows)), tokens(rows)),
        {
            2: ["decoder.0"],
            3: ["encoder.1", "decoder.0"],
            4: ["encoder.1", "decoder.0", "decoder.1"],
        },
    ),
    "unet": Case(
        UNet,
        lambda rows: ((images(rows),), images(rows)),
        {2: ["middle"], 3: ["down2", "up2"], 4: ["down2", "middle", "up1"]},
        loss=F.mse_loss,
    ),
    "resnet": Case(
        ResNet,
        lambda rows: ((images(rows),), torch.randint(5, (rows,))),
        BLOCKS,
    ),
    "experts": Case(lambda: GPT(feed_forward=Experts), text, BLOCKS),
}


def make(name, dtype=torch.float64, seed=0):
    """The model of a case on the CPU."""
    torch.manual_seed(seed)
    return CASES[name].build().to(dtype)


def data(name, steps, rows, dtype=torch.float64, seed=1):
    """A batch a step: a tuple of inputs, and a target."""
    torch.manual_seed(seed)
    batches = [CASES[name].batch(rows) for _ in range(steps)]

    def cast(tensor):
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return [(tuple(map(cast, inputs)), cast(target)) for inputs, target in batches]
