# SPDX-License-Identifier: Apache-2.0
"""Random programs as Python text: drafted from a seed, run anywhere, compared, made smaller."""

import dataclasses
import random
import re

import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal
from program_ops import OPS

MOST_ELEMENTS, MOST_DIMS, LARGEST = 400, 5, 100.0
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
    """What a program starts from: floats, perhaps with a gradient, or indices below 8."""

    name: str
    shape: tuple
    index: bool = False
    spec: tuple | None = None
    gradient: bool = True


@dataclasses.dataclass(frozen=True)
class Program:
    """Straight-line Python over values v0, v1, …; on the CPU ``mark`` and ``step`` mean nothing.

    With ``steps`` > 1, an optimizer updates the inputs after each step's backward, whose gradients
    are clipped where ``clip`` is set.
    """

    seed: int
    mesh: tuple
    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    steps: int = 1
    optimizer: str = "sgd"
    clip: float | None = None

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
            + "    sum((v * row).sum() for v, row in zip(wanted, rows, strict=True)).backward()",
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
            "        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)",
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
    return f"torch.randn({i.shape}, dtype=torch.float64, generator=generator)"


# --- drafting -------------------------------------------------------------------------------------


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
        return self.pick(lambda t: t.is_floating_point() and fits(t))

    def index(self, fits=lambda t: True):
        return self.pick(lambda t: t.dtype == torch.int64 and fits(t))

    def dim(self, name):
        return self.rng.randrange(self[name].dim())

    def broadcast(self, x, y):
        pairs = zip(reversed(self[x].shape), reversed(self[y].shape), strict=False)
        return all(a == b or 1 in (a, b) for a, b in pairs)

    def fresh(self):
        self.counter += 1
        return f"v{self.counter - 1}"

    def add(self, written):
        """Run what an op wrote; keep it where its values are small, finite numbers or indices."""
        space, counter = dict(self.space), self.counter
        lines = written if isinstance(written, list) else [f"$ = {written}"]
        try:
            exec("\n".join(lines).replace("$", "made"), space)
        except (RuntimeError, IndexError, ValueError):  # sizes that PyTorch refuses
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


def kept(value):
    if not 0 < value.numel() <= MOST_ELEMENTS or value.dim() > MOST_DIMS:
        return False
    if not value.is_floating_point():
        return value.dtype == torch.int64 and value.abs().max() < 1000
    if value.dtype != torch.float64:
        return False
    return bool(value.isfinite().all()) and value.abs().max() < LARGEST


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
    return [s for s in rng.sample(menu, 4) if torch.Size(s).numel() <= MOST_ELEMENTS]


def random_spec(rng, rank, axes):
    """A partition spec: some axes, each on at most one dim, often two on one."""
    entries = [[] for _ in range(rank)]
    for axis in rng.sample(axes, len(axes)):
        if rank and rng.random() < 0.7:
            entries[rng.randrange(rank)].append(axis)
    return tuple(tuple(e) if len(e) > 1 else (e[0] if e else None) for e in entries)


def draft(seed, length=None, ops=None, mesh=None):
    """The program of a seed: `length` ops, by default 3 to 10; `ops` with their weights."""
    rng = random.Random(seed)
    ids, shape = mesh or MESHES[seed % len(MESHES)]
    axes = list("xyz"[: len(shape)])
    d, inputs = Draft(seed + 1), []
    shapes = random_shapes(rng)
    first = shapes[0][0]
    for s, index in [(s, False) for s in shapes] + [((first,), True), (shapes[-1], True)]:
        spec = random_spec(rng, len(s), axes) if rng.random() < 0.8 else None
        inputs.append(Input(d.fresh(), s, index, spec, not index and rng.random() < 0.75))
    if not any(i.gradient for i in inputs):
        inputs[0] = dataclasses.replace(inputs[0], gradient=True)
    generator = torch.Generator().manual_seed(seed)
    for i in inputs:
        value = eval(drawn(i), {"torch": torch, "generator": generator})
        d.space[i.name] = value.requires_grad_(i.gradient)
        d.names.append(i.name)
    length = length or rng.choice((3, 4, 5, 6, 7, 8, 10))
    menu, weights = zip(*(ops or OPS).items(), strict=True)
    for _ in range(8 * length):
        if length == 0:
            break
        written = rng.choices(menu, weights)[0](d)
        made = d.add(written) if written else []
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
    return Program(seed, mesh, tuple(inputs), tuple(d.lines), steps, optimizer, clip)


# --- running --------------------------------------------------------------------------------------


def total_of(values):
    """A number to differentiate: no two elements of a row weigh the same."""
    total = None
    for v in values:
        if not (v.is_floating_point() and v.requires_grad):
            continue
        row = torch.linspace(0.5, 1.5, v.shape[-1] if v.dim() else 1).to(torch.float64)
        v = (v * row.to(v.device)).sum()
        total = v if total is None else total + v
    return total


def run(program, device, mesh=None, nudge=None, respec=lambda spec: spec):
    """What the program makes, by name, on the CPU: values of the last step, inputs, gradients.

    `nudge` maps every float value that a line makes to one that rounding might have made as well;
    `respec` says a spec of the program in the words of another mesh.
    """
    generator = torch.Generator().manual_seed(program.seed)
    space = {"torch": torch, "F": F, "mark": lambda value, spec: None, "step": lambda: None}
    if mesh is not None:
        space["step"] = spmdx.mark_step
        space["mark"] = lambda value, spec: spmdx.mark_sharding(value, mesh, respec(spec))
    for i in program.inputs:
        value = eval(drawn(i), {"torch": torch, "generator": generator}).to(device)
        space[i.name] = value.requires_grad_(i.gradient)
        if i.spec is not None:
            space["mark"](value, i.spec)
    leaves = {name: space[name] for name in program.leaves()}
    optimizer = None
    if program.steps > 1:
        text = OPTIMIZERS[program.optimizer].format(", ".join(leaves))
        optimizer = eval(text, space)
    code = [compile(line, "<program>", "exec") for line in merged(program.lines, nudge)]
    gradients = {}
    for _ in range(program.steps):
        for part in code:
            exec(part, space)
            if nudge:
                nudge(space)
        values = {name: space[name] for name in program.made()}
        total = total_of(values.values())
        if total is not None and total.requires_grad:
            total.backward()
        gradients = {f"gradient of {n}": x.grad for n, x in leaves.items() if x.grad is not None}
        if optimizer is not None:
            gradients = {n: g.clone() for n, g in gradients.items()}
            if program.clip is not None:
                torch.nn.utils.clip_grad_norm_(leaves.values(), program.clip)
            optimizer.step()
            optimizer.zero_grad()
            space["step"]()
    found = {**values, **leaves, **gradients}
    return {name: value.detach().cpu() for name, value in found.items()}


def merged(lines, apart):
    return lines if apart else ("\n".join(lines),)


def difference(program, want=None):
    """None where the sharded run equals plain PyTorch; else what is wrong."""
    want = want or run(program, "cpu")
    try:
        got = run(program, "spmdx", program.make_mesh())
        assert list(got) == list(want), f"made {sorted(got)} instead of {sorted(want)}"
        for name in want:
            assert_equal(got[name], want[name], name)
    except Exception as error:  # noqa: BLE001 - whatever happens is reported with its seed
        return f"{type(error).__name__}: {error}"
    return None


class Nudge:
    """Adds to every new float value an error as rounding makes it."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.seen = set()

    def __call__(self, space):
        for name, value in list(space.items()):
            if not NAME.fullmatch(name) or not value.is_floating_point() or id(value) in self.seen:
                continue
            if not value.is_leaf or not value.requires_grad:
                noise = torch.randn(value.shape, dtype=value.dtype, generator=self.generator)
                space[name] = value + noise * (1e-15 * (value.detach().abs().max() + 1e-3))
            self.seen.add(id(space[name]))
            self.kept = [*getattr(self, "kept", ()), space[name]]  # ids stay taken


def is_unsteady(program, want, tries=8):
    """Whether rounding alone may change the result: a comparison at a tie, say."""
    for seed in range(tries):
        got = run(program, "cpu", nudge=Nudge(seed))
        try:
            for name in want:
                assert_equal(got[name], want[name], name)
        except AssertionError:
            return True
    return False


def judge(program):
    """(verdict, what is wrong): "equal", "unsteady" (rounding explains it) or "different"."""
    want = run(program, "cpu")
    said = difference(program, want)
    if said is None:
        return "equal", None
    if said.startswith("AssertionError") and is_unsteady(program, want):
        return "unsteady", said
    return "different", said


# --- making smaller -------------------------------------------------------------------------------


def still_wrong(program):
    """What is wrong with a candidate; None for one that is right, unsteady or no program at all."""
    try:
        verdict, said = judge(program)
    except Exception:  # noqa: BLE001 - plain PyTorch refuses it: a name or a shape is missing
        return None
    return said if verdict == "different" else None


def smaller(program):
    """Candidates, the boldest first: fewer steps, lines, inputs, marks, axes."""
    if program.steps > 1:
        yield dataclasses.replace(program, steps=1)
        if program.clip is not None:
            yield dataclasses.replace(program, clip=None)
    n = len(program.lines)
    size = n
    while size:
        for start in range(0, n, size):
            lines = program.lines[:start] + program.lines[start + size :]
            if lines:
                yield dataclasses.replace(program, lines=lines)
        size //= 2
    used = set(NAME.findall("\n".join(program.lines)))
    for k, i in enumerate(program.inputs):
        rest = program.inputs[:k], program.inputs[k + 1 :]
        if i.name not in used:
            yield dataclasses.replace(program, inputs=rest[0] + rest[1])
        if i.spec is not None:
            bare = dataclasses.replace(i, spec=None)
            yield dataclasses.replace(program, inputs=(*rest[0], bare, *rest[1]))
            for d, entry in enumerate(i.spec):
                if entry is not None and any(e for j, e in enumerate(i.spec) if j != d):
                    spec = (*i.spec[:d], None, *i.spec[d + 1 :])
                    bare = dataclasses.replace(i, spec=spec)
                    yield dataclasses.replace(program, inputs=(*rest[0], bare, *rest[1]))
    for mesh in (((0, 1), (2,)),):
        if len(program.mesh[1]) == 1 and len(program.mesh[0]) > 2:
            yield dataclasses.replace(program, mesh=mesh)


def shrink(program, attempts=400):
    """The smallest program found that is still wrong, and what is wrong with it."""
    said, progress = still_wrong(program), True
    while progress and said:
        progress = False
        for candidate in smaller(program):
            attempts -= 1
            if attempts < 0:
                return program, said
            found = still_wrong(candidate)
            if found:
                program, said, progress = candidate, found, True
                break
    return program, said
