# SPDX-License-Identifier: Apache-2.0
"""Random programs of views, copies and in-place writes, run on the CPU and on the device."""

import collections
import copy
import io
import warnings

import spmdx
import torch
from alias_places import expanded, repeats, tied, twins, walked
from alias_views import VIEWS, Draws, was_loaded
from alias_writes import COPIES, FILLS, PAIRS, WRITES, numbers
from hardware import ON_GPU

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

DTYPES = [torch.float32] * 5 + [torch.bfloat16, torch.float16, torch.int64, torch.uint8]
DTYPES += [torch.bool, torch.complex64, torch.complex64]
MESHES = [((2,), ("a",)), ((3,), ("a",)), ((4,), ("a",)), ((8,), ("a",)), ((2, 2), ("a", "b"))]

# Writes that the device refuses and the CPU does not, by kind: their result on the CPU depends on
# the order in which one element is written several times.
refused_here = collections.Counter()


class Program:
    """Tensors of the CPU and the same of the device; what was done to them."""

    def __init__(self, seed, moved):
        self.rng = rng = Draws(seed, moved)
        self.log = []
        shape = [rng.choice([0, 1, 2, 3, 4, 5, 6]) for _ in range(rng.randint(1, 4))]
        if rng.random() < 0.8:
            shape = [max(n, 1) for n in shape]
        dtype = rng.choice(DTYPES)
        self.graded = dtype == torch.float32 and rng.random() < 0.25
        generator = torch.Generator().manual_seed(seed)
        base = torch.randint(0, 5, shape, generator=generator).to(dtype)
        here = base.to("spmdx")
        self.note(f"base {shape} {dtype}")
        if rng.random() < 0.5:
            self.mark(here)
        self.leaves = base, here
        if self.graded:
            for leaf in self.leaves:
                leaf.requires_grad_()
            base, here = base * 2, here * 2
        self.cpu, self.dev = [base], [here]

    def note(self, what):
        self.log.append(what)

    def mark(self, tensor):
        shape, names = self.rng.choice(MESHES)
        devices = 1
        for n in shape:
            devices *= n
        mesh = spmdx.Mesh(range(devices), shape, names)
        spec = [None] * tensor.dim()
        for name in names:
            spec[self.rng.randrange(tensor.dim())] = name
        spmdx.mark_sharding(tensor, mesh, tuple(spec))
        self.note(f"marked {shape} {spec}")

    def both(self, what, act, *places):
        """Does it on both sides. True: done; False: both refuse; else the difference in words."""
        results, errors = [], []
        for pool in (self.cpu, self.dev):
            try:
                results.append(act(*[pool[i] for i in places]))
                errors.append(None)
            except NotImplementedError:  # the device says so when the step runs
                return False
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                errors.append(error)
        self.note(f"{what}({', '.join(map(str, places))})")
        expected, got = errors
        if (expected is None) != (got is None):
            return f"the CPU says {expected!r}, the device {got!r}"
        if got is not None:
            if isinstance(got, spmdx.InternalError):
                return f"{got!r} where the CPU says {expected!r}"
            self.log[-1] += " refused"
            return False
        self.results = results
        return True

    def make(self, what, act, *places):
        done = self.both(what, act, *places)
        if done is not True:
            return done or None
        for pool, made in zip((self.cpu, self.dev), self.results, strict=True):
            pool.extend(made if isinstance(made, (list, tuple)) else [made])
        self.log[-1] = f"{len(self.cpu) - 1} = {self.log[-1]}"
        return self.layouts()

    def layouts(self):
        for i, (a, b) in enumerate(zip(self.cpu, self.dev, strict=True)):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return f"{i}: {a.shape} {a.dtype} became {b.shape} {b.dtype}"
            if (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()):
                return f"{i}: conjugate, negative {a.is_conj(), a.is_neg()} became the other"
            if a.numel() and not was_loaded(a) and a.storage_offset() != b.storage_offset():
                return f"{i}: offset {a.storage_offset()} became {b.storage_offset()}"
            if a.numel() and walked(a) != walked(b):
                return f"{i}: strides {a.stride()} of {a.shape} became {b.stride()}"
        return None

    def write(self, at):
        rng, t = self.rng, self.cpu[at]
        c = rng.choice([-2, -1, 2, 3]) if t.dtype != torch.uint8 else rng.choice([1, 2, 3])
        name = rng.choice([*WRITES, *FILLS])
        if name in ("index", "end", "two", "diagonal", "beside") and (
            t.numel() == 0 or t.dim() < 1
        ):
            return None
        if name == "diagonal" and (t.dim() < 2 or (t.dim() > 2 and len(set(t.shape)) > 1)):
            return None
        if name == "beside" and (len(t) < 2 or repeats(t)):
            return None
        act = {**WRITES, **FILLS}[name]
        if name not in FILLS and repeats(t) and not self.writes_alike(name, t):
            return self.refuse(name, act, at, c)
        done = self.both(f"write {name} {c}", lambda x: act(x, c), at)
        return done if isinstance(done, str) else self.layouts()

    def writes_alike(self, name, t):
        """Every place gets one number, or PyTorch refuses it, too."""
        if name in ("full", "set", "diagonal"):
            return True
        once = t.detach()[tuple(slice(0, 1) if s == 0 else slice(None) for s in t.stride())]
        return name == "masked" and not repeats(once)

    def refuse(self, name, act, at, c):
        """Elements would be written several times: refused, and nothing was written."""
        if not (self.cpu[at].numel() and expanded(self.cpu[at])):
            refused_here[name] += 1
        try:
            act(self.dev[at], c)
        except (RuntimeError, TypeError) as error:
            return repr(error) if isinstance(error, spmdx.InternalError) else None
        return f"{name} of repeated elements {at} was not refused"

    def pair(self, at):
        t = self.cpu[at]
        fits = [i for i, o in enumerate(self.cpu) if o.shape == t.shape and o.dtype == t.dtype]
        if repeats(t):
            return None
        other, name = self.rng.choice(fits), self.rng.choice(list(PAIRS))
        if tied(t, self.cpu[other]):
            with torch.no_grad():
                try:
                    PAIRS[name](*twins(t, self.cpu[other]))
                    return None  # too hard for PyTorch to see: what it gives depends on the order
                except RuntimeError:
                    pass
        done = self.both(f"pair {name}", PAIRS[name], at, other)
        return done if isinstance(done, str) else self.layouts()

    def resize(self, at):
        rng = self.rng
        sizes = [rng.randint(0, 4) for _ in range(rng.randint(1, 4))]
        t = self.cpu[at]
        if was_loaded(t) or t.storage_offset() * t.element_size() > t.untyped_storage().nbytes():
            return None
        formats = {"memory_format": torch.channels_last} if len(sizes) == 4 else {}

        def act(x):
            x.resize_(sizes, **formats)
            return x.fill_(1)  # what is new is garbage on the CPU

        done = self.both(f"resize {sizes}", act, at)
        return done if isinstance(done, str) else self.layouts()

    def container(self, at):
        places = [at] + [self.rng.randrange(len(self.cpu)) for _ in range(self.rng.randint(0, 2))]
        if self.rng.random() < 0.5:
            return self.make("deepcopy", lambda *x: copy.deepcopy(x), *places)

        def reload(*tensors):
            file = io.BytesIO()
            torch.save(list(tensors), file)
            file.seek(0)
            return torch.load(file)

        shown = {(t.untyped_storage()._cdata, t.dtype) for t in map(self.cpu.__getitem__, places)}
        if self.graded or len({storage for storage, _ in shown}) < len(shown):
            return None  # PyTorch refuses to pickle one storage as two dtypes
        return self.make("reload", reload, *places)

    def step(self):
        rng = self.rng
        at = rng.randrange(len(self.cpu))
        kind = rng.random()
        if kind < 0.45:
            make = rng.choice(VIEWS)
            view = make(rng, self.cpu[at])
            return view and self.make(make.__name__, view, at)
        if kind < 0.72:
            return self.write(at)
        if kind < 0.82:
            return self.pair(at)
        if kind < 0.9:
            name = rng.choice(list(COPIES))
            return self.make(name, COPIES[name], at)
        if kind < 0.93:
            return self.resize(at)
        if kind < 0.96:
            return self.container(at)
        self.note("mark_step")
        spmdx.mark_step()
        return None

    def compare(self):
        for i, (expected, got) in enumerate(zip(self.cpu, self.dev, strict=True)):
            there = got.detach().cpu()
            rtol = 1e-2 if ON_GPU and expected.itemsize == 2 else 1e-4
            if not torch.allclose(expected.detach(), there, rtol=rtol, atol=1e-5, equal_nan=True):
                return f"value {i} is\n{there}\nnot\n{expected}"
        return None

    def gradients(self):
        def loss(pool):
            total = 0
            for t in pool:
                if t.requires_grad:
                    total = total + (t * numbers(t)).sum()
            return total.backward() if isinstance(total, torch.Tensor) else None

        errors = []
        for pool in (self.cpu, self.dev):
            try:
                loss(pool)
                errors.append(None)
            except RuntimeError as error:
                errors.append(error)
        if errors[0] is None and "more than one element" in str(errors[1]):
            refused_here["backward"] += 1  # PyTorch writes a gradient through the same view
            return None
        if (errors[0] is None) != (errors[1] is None):
            return f"backward: the CPU says {errors[0]!r}, the device {errors[1]!r}"
        expected, got = self.leaves[0].grad, self.leaves[1].grad
        if errors[0] is not None or expected is None:
            return None
        if not torch.allclose(expected, got.cpu(), rtol=1e-4, atol=1e-4, equal_nan=True):
            return f"the gradient is\n{got.cpu()}\nnot\n{expected}"
        return None


def run_program(seed, moved=0):
    """Runs one program on both devices and returns its first difference, or None.

    Programs of one seed differ in where the parts lie that they take: by `moved`.
    """
    program = Program(seed, moved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(program.rng.randint(3, 12)):
            difference = program.step()
            if difference:
                return f"{program.log}: {difference}"
        difference = program.compare() or (program.gradients() if program.graded else None)
    return f"{program.log}: {difference}" if difference else None
