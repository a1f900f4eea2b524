# SPDX-License-Identifier: Apache-2.0
"""Random programs over several meshes: what lies where changes, and values stay eager's.

python tests/python/helpers/program/mesh_programs.py [--first 0] [--count 1000]
"""

import argparse
import random
import sys

import spmdx
import torch
from random_programs import random_spec

SHAPES = {
    "two": (range(2), (2,)),
    "three": (range(3), (3,)),
    "four": (range(4), (4,)),
    "square": (range(4), (2, 2)),
    "from the other end": ([7, 6, 5, 4], (4,)),
    "eight": (range(7, -1, -1), (2, 4)),
    "two, turned": ([1, 0], (2,)),
}
TWO_MESHES = "one step uses tensors of two meshes"
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


class Skipped(Exception):
    """Eager refuses what was drawn, or the device a step of two meshes in the middle of a write."""


class Pair:
    """A tensor on the CPU and the same on the device."""

    def __init__(self, plain, ours):
        self.plain, self.ours = plain, ours

    def map(self, function, *others):
        """The results of a function that takes the tensor, and others."""
        plain = function(self.plain, *(other.plain for other in others))
        return Pair(plain, function(self.ours, *(other.ours for other in others)))

    def write(self, function, *others):
        with torch.no_grad():
            function(self.plain, *(other.plain for other in others))
            function(self.ours, *(other.ours for other in others))

    def check(self, what):
        torch.testing.assert_close(self.ours.detach().cpu(), self.plain.detach(), msg=what, **CLOSE)


UNARY = [
    torch.tanh,
    lambda x: x.t(),
    lambda x: x.detach(),
    lambda x: x.detach().clone(),
    lambda x: x.reshape(-1).reshape(x.shape).sin(),
    lambda x: x.cumsum(0) * 0.2,
    lambda x: x.sum(0, keepdim=True).expand(x.shape),
]
BINARY = [torch.add, torch.mul, torch.sub, lambda x, y: x @ y * 0.3]


def filled(x):
    x[0] = 1.5


WRITES = [filled, lambda x: x.t()[1:].mul_(0.5), lambda x: x.zero_(), lambda x: x.add_(1)]


class Program:
    """Parameters, which stay, and values, which come and go."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.size = self.draw.randint(3, 7)
        names = self.draw.sample(sorted(SHAPES), self.draw.choice([2, 2, 3]))
        self.meshes = [
            spmdx.Mesh(ids, shape, ("a", "b")[: len(shape)])
            for ids, shape in (SHAPES[name] for name in names)
        ]
        self.parameters = [self.parameter() for _ in range(self.draw.randint(3, 6))]
        self.values = []

    def parameter(self):
        plain = torch.randn(self.size, self.size, dtype=torch.float64)
        pair = Pair(plain, plain.clone().to("spmdx"))
        if self.draw.random() < 0.6:
            pair.plain.requires_grad_()
            pair.ours.requires_grad_()
        if self.draw.random() < 0.7:
            self.annotate(pair)
        return pair

    def annotate(self, pair):
        mesh = self.draw.choice(self.meshes)
        spmdx.mark_sharding(pair.ours, mesh, random_spec(self.draw, 2, mesh.axis_names))

    def any(self):
        return self.draw.choice(self.parameters + self.values)

    # --- what a program does ----------------------------------------------------------------------

    def compute(self):
        functions = self.draw.choice([UNARY, BINARY, BINARY])
        others = [self.any()] if functions is BINARY else []
        self.values.append(self.any().map(self.draw.choice(functions), *others))

    def backward(self):
        wanted = [v for v in self.values if v.plain.grad_fn]
        if not wanted:
            return
        value, squared = self.draw.choice(wanted), self.draw.random() < 0.5
        try:
            (value.plain.square() if squared else value.plain).sum().backward(retain_graph=True)
        except RuntimeError as error:
            raise Skipped from error
        (value.ours.square() if squared else value.ours).sum().backward(retain_graph=True)

    def update(self):
        p = self.draw.choice(self.parameters)
        if p.plain.grad is not None:
            self.values.clear()
            p.write(lambda x: x.sub_(x.grad, alpha=0.01))

    def average(self):
        p, q = self.draw.sample(self.parameters, 2)
        self.values.clear()
        q.write(lambda x, y: x.mul_(0.9).add_(y, alpha=0.1), p)

    def overwrite(self):
        p, q = self.draw.sample(self.parameters, 2)
        self.values = [v for v in self.values if not v.plain.requires_grad]
        p.write(self.draw.choice(WRITES))
        p.write(lambda x, y: x.add_(y), q)

    def drop_gradient(self):
        p, to_none = self.draw.choice(self.parameters), self.draw.random() < 0.5
        for x in (p.plain, p.ours):
            if x.grad is not None:
                x.grad = None if to_none else x.grad.detach().zero_()

    def mark(self):
        self.annotate(self.draw.choice(self.parameters))

    def unmark(self):
        spmdx.clear_sharding(self.draw.choice(self.parameters).ours)

    def drop(self):
        if self.values:
            self.values.pop(self.draw.randrange(len(self.values)))

    def read(self):
        self.any().check("read")

    def step(self):
        spmdx.mark_step()

    STATEMENTS = [
        *[compute] * 5, backward, update, update, average, overwrite, drop_gradient, mark, unmark,
        drop, read, step, step,
    ]  # fmt: skip
    WRITING = {backward, update, average, overwrite, drop_gradient}

    def run(self):
        for _ in range(self.draw.randint(6, 25)):
            statement = self.draw.choice(self.STATEMENTS)
            try:
                statement(self)
            except spmdx.ShardingError as error:
                self.accept(error)
                if statement in self.WRITING:
                    raise Skipped from error
            except RuntimeError as error:
                if "modified by an inplace operation" not in str(error):
                    raise
                raise Skipped from error

    @staticmethod
    def accept(error):
        if TWO_MESHES not in str(error):
            raise error

    def check(self):
        """All values, and parameters where they were marked to lie."""
        for number, p in enumerate(self.parameters):
            self.settled(p, f"parameter {number}")
            if p.plain.grad is not None:
                self.settled(Pair(p.plain.grad, p.ours.grad), f"gradient {number}")
        for number, v in enumerate(self.values):
            self.settled(v, f"value {number}")
        spmdx.mark_step()
        for p in self.parameters:
            marked = spmdx.get_annotation(p.ours)
            assert marked is None or spmdx.get_sharding(p.ours).mesh == marked.mesh

    def settled(self, pair, what):
        for _ in range(3):  # a step of two meshes is refused once, and undone
            try:
                return pair.check(what)
            except spmdx.ShardingError as error:
                self.accept(error)
        raise AssertionError(f"{what} cannot be read")


def run_program(seed):
    """Whether a program ran to its end; raises where values differ."""
    spmdx.runtime.set_device_count(8)
    try:
        program = Program(seed)
        program.run()
        program.check()
    except Skipped:
        return False
    finally:
        spmdx.sync(wait=True)
    return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    whole = 0
    for seed in seeds:
        print(f"\rseed {seed}", end="", file=sys.stderr, flush=True)
        whole += run_program(seed)
    print(f"\n{len(seeds)} programs, {whole} ran to their end, 0 different")
