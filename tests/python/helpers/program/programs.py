# SPDX-License-Identifier: Apache-2.0
"""Random programs as Python text: drafted from a seed. program_oracle.py runs and compares them."""

import dataclasses
import random
import re

import spmdx
import torch
import torch.nn.functional as F
from program_ops import OF_MORE_DTYPES, OPS

MOST_ELEMENTS, MOST_DIMS, LARGEST = 400, 5, 100.0
EXACT = (torch.int64, torch.int32, torch.uint8, torch.bool)
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
        ids, shape = self.mesh
        body = [
            "# SPDX-License-Identifier: Apache-2.0",
            f'"""The program of seed {self.seed}, made smaller."""',
            "import spmdx",
            "import torch",
            "import torch.nn.functional as F",
            "",
            f"spmdx.runtime.set_device_count({max(ids) + 1})",
            f"mesh = spmdx.Mesh({list(ids)}, {shape}, {self.axes})",
            "",
            "",
            "def run(device):",
            "    def mark(value, spec):",
            '        if device != "cpu":',
            "            spmdx.mark_sharding(value, mesh, spec)",
            "",
            "    def step():",
            '        if device != "cpu":',
            "            spmdx.mark_step()",
            "",
            f"    generator = torch.Generator().manual_seed({self.seed})",
        ]
        for i in self.inputs:
            body.append(f"    {i.name} = {drawn(i)}.to(device)")
            body += [f"    {i.name}.requires_grad_()"] if i.gradient else []
            body += [f"    mark({i.name}, {i.spec})"] if i.spec else []
        leaves = ", ".join(self.leaves())
        names = ", ".join(self.made())
        optimizer = self.steps > 1
        if optimizer:
            body.append(f"    optimizer = {OPTIMIZERS[self.optimizer].format(leaves)}")
            body.append(f"    for _ in range({self.steps}):")
        pad = "    " * (1 + optimizer)
        body += [pad + line for line in self.lines]
        body += [
            pad + f"wanted = [v for v in ({names},) if v.requires_grad]",
            pad
            + "rows = [torch.linspace(0.5, 1.5, v.shape[-1] if v.dim() else 1) for v in wanted]",
            pad + "rows = [row.to(torch.float64).to(device) for row in rows]",
            pad + "if wanted:",
            pad
            + "    totals = [(v * row).sum().real for v, row in zip(wanted, rows, strict=True)]",
            pad + "    sum(totals).backward()",
        ]
        body.append(
            pad + f"gradients = [None if x.grad is None else x.grad.clone() for x in ({leaves},)]"
        )
        if optimizer:
            if self.clip is not None:
                body.append(pad + f"torch.nn.utils.clip_grad_norm_([{leaves}], {self.clip})")
            body += [pad + "optimizer.step()", pad + "optimizer.zero_grad()", pad + "step()"]
        body += [
            f"    values = [{names}, {leaves}, *gradients]",
            "    return [None if v is None else v.detach().cpu() for v in values]",
            "",
            "",
            'for want, got in zip(run("cpu"), run("spmdx"), strict=True):',
            "    if want is not None:",
            f"        torch.testing.assert_close(got, want, rtol={self.close}, atol={self.close})",
            'print("equal")',
        ]
        return "\n".join(body) + "\n"


OPTIMIZERS = {
    "sgd": "torch.optim.SGD([{}], lr=0.05, momentum=0.9)",
    "adamw": "torch.optim.AdamW([{}], lr=0.05, eps=0.01)",
}


def drawn(i):
    """The expression that makes an input from `generator`."""
    if i.index:
        return f"torch.randint(8, {i.shape}, generator=generator)"
    drawn_as = torch.float64 if i.dtype.is_floating_point else i.dtype
    made = f"torch.randn({i.shape}, dtype={drawn_as}, generator=generator)"
    return made if i.dtype == drawn_as else f"{made}.to({i.dtype})"


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


def hide(rng, lines, names):
    """Most values that others are made of die at their last use: only such may stay partial."""
    lines = list(lines)
    for name in names:
        used = [k for k, line in enumerate(lines) if name in NAME.findall(line)]
        read = [k for k in used if name in NAME.findall(lines[k].split(" = ")[-1])]
        if any("mark(" not in lines[k] for k in read) and rng.random() < 0.7:
            lines.insert(used[-1] + 1, f"del {name}")
    return lines


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
