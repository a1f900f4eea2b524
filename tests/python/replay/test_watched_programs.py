# SPDX-License-Identifier: Apache-2.0
"""Of ordinary programs nothing is refused, and only what counts changes from call to call."""

import functools
import logging
import os

import numpy
import pytest
import torch
from torch import nn
from watched_state import sentences, watch


def mlp():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 4))
    return model, torch.ones(2, 4)


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.ones(2, 3, 8)


class Attention(nn.Module):
    """The user's own, which takes its layers by their numbers, and has a default."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(8, 2) for _ in range(2))
        self.norms = nn.ModuleDict({"a": nn.LayerNorm(8)})
        self.depth, self.register = 2, {"unread": open(os.devnull)}

    def forward(self, x, scale=1.0):
        for i in range(self.depth):
            x = x + self.layers[i](x, x, x, need_weights=False)[0] * scale
        return self.norms["a"](x)


def attention():
    return Attention(), torch.ones(3, 2, 8)


def convolutions():
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten())
    return nn.Sequential(body, nn.LazyLinear(3)), torch.ones(2, 1, 5, 5)


SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAM = functools.partial(torch.optim.AdamW, lr=0.1)
ALONE = functools.partial(torch.optim.Adam, lr=0.1, foreach=False)
HALVED = functools.partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
WARM = functools.partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda epoch: 0.9**epoch)
ONES = functools.partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=99)
CLIP = {"clip": True}
PROGRAMS = {
    "mlp": (mlp, SGD, {}),
    "mlp_adam": (mlp, ADAM, CLIP),
    "mlp_adam_alone": (mlp, ALONE, {}),
    "scheduled": (mlp, SGD, {"schedule": HALVED}),
    "scheduled_by_a_function": (mlp, ADAM, {"schedule": WARM}),
    "one_cycle": (mlp, ADAM, {"schedule": ONES}),
    "mixed": (mlp, SGD, {"mixed": True}),
    "scaled": (mlp, SGD, {"scaler": True}),
    "transformer": (transformer, ADAM, CLIP),
    "transformer_mixed": (transformer, SGD, {"mixed": True}),
    "transformer_recomputed": (transformer, SGD, {"recomputed": True}),
    "attention": (attention, ADAM, CLIP),
    "attention_scheduled": (attention, ALONE, {"schedule": HALVED}),
    "convolutions": (convolutions, ADAM, {}),
    "convolutions_clipped": (convolutions, SGD, CLIP),
}


class Loop:
    """An ordinary trainer, with much that its step does not touch."""

    def __init__(self, device, made, optimizer, *, schedule=None, scaler=False, **kwargs):
        model, self.x = made()
        self.model, self.x = model.to(device), self.x.to(device)
        self.model(self.x)
        self.optimizer = optimizer(self.model.parameters())
        self.schedule = schedule(self.optimizer) if schedule else None
        self.scaler = torch.amp.GradScaler("cpu") if scaler and device == "cpu" else None
        self.mixed, self.clip = kwargs.get("mixed", False), kwargs.get("clip", False)
        self.recomputed, self.device_type = kwargs.get("recomputed", False), device
        self.loader = iter(torch.utils.data.DataLoader([1, 2, 3]))
        self.logger, self.written, self.table = (
            logging.getLogger("x"),
            open(os.devnull),
            numpy.ones(1),
        )

    def loss(self):
        with torch.autocast(self.device_type, torch.bfloat16, enabled=self.mixed):
            if self.recomputed:
                y = torch.utils.checkpoint.checkpoint(self.model, self.x, use_reentrant=False)
            else:
                y = self.model(self.x)
        return y.float().square().mean()

    def step(self):
        self.optimizer.zero_grad()
        self.logger.debug("not shown")
        loss = self.loss()
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            if self.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        if self.schedule:
            self.schedule.step()
        return loss.detach()


MAY_CHANGE = (
    "['step']",
    "schedule.",
    "'lr'",
    "'betas'",
    "_scale",
    "_growth_tracker",
    "values of",
    "per_optimizer",
)


@pytest.mark.parametrize("device", ["cpu", "spmdx"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_of_an_ordinary_program_only_what_counts_changes(name, device):
    made, optimizer, options = PROGRAMS[name]
    loop = Loop(device, made, optimizer, **options)
    watched = watch(loop.step, calls=3)
    assert watched.refusal is None
    assert watched.changed() is None
    loop.step()
    loop.step()
    changes = list(sentences(watched))
    assert not [text for text in changes if not any(may in text for may in MAY_CHANGE)]
    assert name not in ("mlp", "mixed", "transformer_mixed") or device == "cpu" or not changes
    paths = dict(watched.tensors)
    assert len(paths) == (0 if device == "cpu" else len(paths))
    assert {id(p) for p in loop.model.parameters()} <= {
        id(tensor) for tensor in paths.values()
    } or device == "cpu"


def test_tensors_of_the_device_are_called_by_what_holds_them():
    model = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"a": nn.Linear(2, 2)})).to("spmdx")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x = torch.ones(2).to("spmdx")

    def step():
        model[1]["a"](model[0](x)).sum().backward()
        optimizer.step()

    paths = [path for path, _ in watch(step).tensors]
    assert {"x", "model[0].weight", "model[1].a.bias"} <= set(paths)
    assert "optimizer.state[model[0].weight]['momentum_buffer']" in paths
