# SPDX-License-Identifier: Apache-2.0
"""Random programs as Python text: drafted from a seed. program_oracle.py runs and compares them."""

import dataclasses
import random
import re

import spmdx
import torch
from program_draft import MOST_ELEMENTS, Draft, is_smooth
from program_ops import OF_MORE_DTYPES, OPS
from program_text import OPTIMIZERS, drawn, text_of

# Of a program's inputs, with how often of twenty.
SMOOTH = {
    torch.float64: 12,
    torch.float32: 1,
    torch.bfloat16: 3,
    torch.float16: 2,
    torch.complex64: 2,
}
CLOSE = 1e-9  # of a tensor's largest element, in double precision
ROUNDINGS = 8  # of its elements, in fewer digits
NAME = re.compile(r"\bv\d+\b")
MESHES = [
    (tuple(range(2)), (2,)),
    (tuple(range(3)), (3,)),
    (tuple(range(4)), (4,)),
    (tuple(range(8)), (8,)),
    ((3, 0, 2, 1), (2, 2)),
    (tuple(range(8)), (4, 2)),
    (tuple(range(8)), (2, 2, 2)),
    (tuple(range(6)), (2, 3)),
]


@dataclasses.dataclass(frozen=True)
class Input:
    """What a program starts from: numbers, perhaps with a gradient, or indices below 8."""

    name: str
    shape: tuple
    index: bool = False
    spec: tuple | None = None
    gradient: bool = True
    dtype: torch.dtype = torch.float64


@dataclasses.dataclass(frozen=True)
class Program:
    """Straight-line Python over values v0, v1, …; on the CPU ``mark`` and ``step`` mean nothing.

    With ``steps`` > 1, an optimizer updates the inputs after each step's backward, whose gradients
    are clipped where ``clip`` is set. ``rounding`` is that of the coarsest dtype among its values.
    """

    seed: int
    mesh: tuple
    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    steps: int = 1
    optimizer: str = "sgd"
    clip: float | None = None
    rounding: float = 0.0

    @property
    def close(self):
        """What a result may differ by, of its largest element."""
        return max(CLOSE, ROUNDINGS * self.rounding)

    @property
    def axes(self):
        return tuple("xyz"[: len(self.mesh[1])])

    def make_mesh(self):
        return spmdx.Mesh(self.mesh[0], self.mesh[1], self.axes)

    def made(self):
        """The names that its lines make and keep, in order: those that are compared."""
        names = {n: None for line in self.lines for n in NAME.findall(line.split(" = ")[0])}
        gone = {line.removeprefix("del ") for line in self.lines if line.startswith("del ")}
        return [n for n in names if n not in gone | {i.name for i in self.inputs}]

    def leaves(self):
        return [i.name for i in self.inputs if i.gradient]

    def text(self):
        """A Python program that shows the difference by itself."""
        return text_of(self)


def hide(rng, lines, names):
    """Most values that others are made of die at their last use: only such may stay partial."""
    lines = list(lines)
    for name in names:
        used = [k for k, line in enumerate(lines) if name in NAME.findall(line)]
        read = [k for k in used if name in NAME.findall(lines[k].split(" = ")[-1])]
        if any("mark(" not in lines[k] for k in read) and rng.random() < 0.7:
            lines.insert(used[-1] + 1, f"del {name}")
    return lines


def rounding_of(values):
    """That of the coarsest dtype; 0 for doubles, and for whole numbers."""
    fine = (torch.float64, torch.complex128)
    coarse = [torch.finfo(v.dtype).eps for v in values if is_smooth(v) and v.dtype not in fine]
    return max(coarse, default=0.0)


def random_shapes(rng):
    a, b, c = (rng.choice([1, 2, 3, 4, 4, 5, 6, 7, 8]) for _ in range(3))
    d = rng.choice([2, 3, 4, 8])
    menu = [
        (a, b),
        (b, c),
        (c, b),
        (a, b, c),
        (b,),
        (c,),
        (d, a),
        (a, c, b, d),
        (a, d, c),
        (3, d, 3),
    ]
    if rng.random() < 0.08:
        menu = [*menu[:4], (0, b), (a, 0), (0, b, c), (a, 0, c), (b, c, 0)]
    return [s for s in rng.sample(menu, 4) if torch.Size(s).numel() <= MOST_ELEMENTS]


def random_spec(rng, rank, axes):
    """A partition spec: some axes, each on at most one dim, often two on one."""
    entries = [[] for _ in range(rank)]
    for axis in rng.sample(axes, len(axes)):
        if rank and rng.random() < 0.7:
            entries[rng.randrange(rank)].append(axis)
    return tuple(tuple(e) if len(e) > 1 else (e[0] if e else None) for e in entries)


def draft(seed, length=None, ops=None, mesh=None, mixed=True):
    """The program of a seed: `length` ops, by default 3 to 10; `ops` with their weights.

    Its numbers are doubles, or `mixed`: of any dtype.
    """
    rng = random.Random(seed)
    ids, shape = mesh or MESHES[seed % len(MESHES)]
    axes = list("xyz"[: len(shape)])
    d, inputs = Draft(seed + 1), []
    shapes = random_shapes(rng)
    first = shapes[0][0]
    (dtype,) = rng.choices(list(SMOOTH), list(SMOOTH.values())) if mixed else (torch.float64,)
    for s, index in [(s, False) for s in shapes] + [((first,), True), (shapes[-1], True)]:
        spec = random_spec(rng, len(s), axes) if rng.random() < 0.8 else None
        gradient = not index and rng.random() < 0.75
        inputs.append(Input(d.fresh(), s, index, spec, gradient, dtype))
    if not any(i.gradient for i in inputs):
        inputs[0] = dataclasses.replace(inputs[0], gradient=True)
    generator = torch.Generator().manual_seed(seed)
    for i in inputs:
        value = eval(drawn(i), {"torch": torch, "generator": generator})
        d.space[i.name] = value.requires_grad_(i.gradient)
        d.names.append(i.name)
    length = length or rng.choice((3, 4, 5, 6, 7, 8, 10))
    menu = ops or {op: w for op, w in OPS.items() if mixed or op not in OF_MORE_DTYPES}
    menu, weights = zip(*menu.items(), strict=True)
    for _ in range(8 * length):
        if length == 0:
            break
        made = d.add_some(rng.choices(menu, weights)[0])
        length -= bool(made)
        for name in made:
            if rng.random() < 0.2:
                d.lines.append(f"mark({name}, {random_spec(rng, d[name].dim(), axes)})")
        if made and rng.random() < 0.04:  # somebody moves an older value
            name = rng.choice(d.names)
            d.lines.append(f"mark({name}, {random_spec(rng, d[name].dim(), axes)})")
        if made and rng.random() < 0.04:
            d.lines.append("step()")
    made = [n for n in d.names if n not in {i.name for i in inputs}]
    d.lines = hide(rng, d.lines, made)
    steps = rng.choice((1, 1, 1, 2))
    optimizer, clip = rng.choice(sorted(OPTIMIZERS)), rng.choice((None, 0.5))
    mesh = (tuple(ids), shape)
    rounding = rounding_of(d[name] for name in d.names)
    return Program(seed, mesh, tuple(inputs), tuple(d.lines), steps, optimizer, clip, rounding)
