# SPDX-License-Identifier: Apache-2.0
"""What the ops of a random program draw from: the values so far, and dice."""

import random

import torch
import torch.nn.functional as F

MOST_ELEMENTS, MOST_DIMS, LARGEST = 400, 5, 100.0
EXACT = (torch.int64, torch.int32, torch.uint8, torch.bool)


class Draft:
    """What an op sees: the values so far, by name, and dice."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.space = {"torch": torch, "F": F}
        self.names, self.lines, self.counter = [], [], 0

    def __getitem__(self, name):
        return self.space[name]

    def choice(self, items):
        return self.rng.choice(list(items))

    def below(self, n):
        return self.rng.randrange(n)

    def shuffled(self, items):
        items = list(items)
        return self.rng.sample(items, len(items))

    def pick(self, fits):
        """A name of a value that fits, recent ones more often; None where there is none."""
        fitting = [n for n in self.names if fits(self[n])]
        if not fitting:
            return None
        late = fitting[-self.choice((1, 3)) :]
        return self.choice(late if self.rng.random() < 0.6 else fitting)

    def float(self, fits=lambda t: True):
        """Of a complex program a complex number will do."""
        return self.pick(lambda t: is_smooth(t) and fits(t))

    def index(self, fits=lambda t: True):
        return self.pick(lambda t: t.dtype == torch.int64 and fits(t))

    def dim(self, name):
        return self.rng.randrange(self[name].dim())

    def broadcast(self, x, y):
        pairs = zip(reversed(self[x].shape), reversed(self[y].shape), strict=False)
        return all(a == b or 1 in (a, b) for a, b in pairs)

    def fits(self, value, other):
        """Whether a value broadcasts to the shape of another."""
        try:
            return torch.broadcast_shapes(value.shape, other.shape) == other.shape
        except RuntimeError:
            return False

    def fresh(self):
        self.counter += 1
        return f"v{self.counter - 1}"

    def add_some(self, op):
        """Add what an op writes, if it finds something to work on."""
        try:
            written = op(self)
        except ValueError:  # no number below 0: a dim has no elements
            return []
        return self.add(written) if written else []

    def add(self, written):
        """Run what an op wrote; keep it where its values are small, finite numbers or indices."""
        space, counter = dict(self.space), self.counter
        lines = written if isinstance(written, list) else [f"$ = {written}"]
        try:
            exec("\n".join(lines).replace("$", "made"), space)
        except (RuntimeError, IndexError, ValueError, TypeError):  # that PyTorch refuses
            return []
        values = space.pop("made")
        several = isinstance(values, (tuple, list))
        values = values if several else [values]
        made = [self.fresh() for _ in values]
        if not all(kept(value) for value in values):
            self.counter = counter
            return []
        names = ", ".join(made) + ("," if several else "")
        lines = [line.replace("$", names) for line in lines]
        space.update(zip(made, values, strict=True))
        self.space = space
        self.lines += lines
        self.names += made
        return made


def is_smooth(value):
    return value.is_floating_point() or value.is_complex()


def kept(value):
    if value.numel() > MOST_ELEMENTS or value.dim() > MOST_DIMS:
        return False
    if value.dtype == torch.complex32:  # PyTorch has few kernels for it
        return False
    if value.numel() == 0:
        return True
    if not is_smooth(value):
        return value.dtype in EXACT and value.to(torch.int64).abs().max() < 1000
    return bool(value.isfinite().all()) and bool(value.abs().max() < LARGEST)
