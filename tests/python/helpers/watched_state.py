# SPDX-License-Identifier: Apache-2.0
"""State of Python that steps of tests read, and a call of a step that is watched."""

import collections
import dataclasses
import enum
import os
import random
import types

import numpy
import torch
from spmdx._replay.state.observed import Observed
from spmdx._replay.state.watch import Watch
from torch import nn

ONE = torch.ones(2)


class Mode(enum.Enum):
    TRAIN = 1
    TEST = 2


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    inner: "Config | None" = None
    mode: Mode = Mode.TRAIN


class Slotted:
    __slots__ = ("rate",)

    def __init__(self):
        self.rate = 1.0


class Trainer:
    """What a step of these does not name is not walked through."""

    factor = 3.0

    def __init__(self):
        self.rate, self.config, self.unread = 1.0, Config(inner=Config()), open(os.devnull)
        self.model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))
        self.values, self.limits, self.betas = [1.0, 2.0], {"a": 1.0}, (0.9, 0.99)
        self.ring, self.space = collections.deque([1.0]), types.SimpleNamespace(rate=1.0)
        self.ordered = collections.OrderedDict(a=1.0, b=2.0)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.1, betas=self.betas)
        self.hook = None
        self.table, self.made, self.iterator = numpy.ones(2), (i for i in range(99)), iter([1])
        self.randoms, self.draws, self.large = random.Random(0), torch.Generator(), [0] * 200_001

    @property
    def doubled(self):
        return self.rate * 2

    def scaled(self, x):
        return x * self.rate

    def __len__(self):
        return 3

    def train(self):
        self.optimizer.zero_grad()
        self.model(ONE).sum().backward()
        self.optimizer.step()


def scale_of(x, by=2.0, *, plus=0.0):
    return x * by + plus


def watch(step, *args, calls=2, **kwargs):
    for _ in range(calls - 1):
        step(*args, **kwargs)
    with Observed() as observed:
        step(*args, **kwargs)
    return Watch(step, args, kwargs, observed)


def sentences(seen):
    """All that changed, in words."""
    return [change.sentence() for change in seen.changes()]


def patch(owner, name, value):
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def do(act):
    return lambda monkeypatch: act()


def noting(cases):
    """Decorates functions that make a step and what changes its state: what is said of that."""

    def case(expected):
        def add(make):
            cases[make.__name__] = make, expected
            return make

        return add

    return case


def assert_is_seen_or_refused(make, expected, monkeypatch):
    step, change = make()
    watched = watch(step)
    if expected.startswith("refused: "):
        assert watched.refusal and watched.refusal.startswith(expected.removeprefix("refused: "))
        return
    assert watched.refusal is None
    assert watched.changed() is None
    change(monkeypatch)
    assert expected in " ".join(sentences(watched))
    assert watched.changed() is not None
