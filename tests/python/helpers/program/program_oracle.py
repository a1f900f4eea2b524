# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on the CPU and on meshes, and says whether their results are equal."""

import spmdx
import torch
import torch.nn.functional as F
from hardware import ON_GPU
from models import assert_equal
from random_programs import NAME, OPTIMIZERS, drawn, is_smooth, rounding_of

LEEWAY = 4  # times what a rounding after every line changes a result, it may differ by


def total_of(values):
    """A number to differentiate: no two elements of a row weigh the same."""
    total = None
    for v in values:
        if not v.requires_grad:
            continue
        row = torch.linspace(0.5, 1.5, v.shape[-1] if v.dim() else 1).to(torch.float64)
        v = (v * row.to(v.device)).sum().real
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
    if nudge:
        nudge(space)
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


def assert_close(got, want, what, close):
    """As :func:`assert_equal`; complex numbers as pairs of numbers."""
    if want.is_complex() and got.is_complex():
        got, want = torch.view_as_real(got.resolve_conj()), torch.view_as_real(want.resolve_conj())
    assert_equal(got, want, what, close)


def difference(program, want=None):
    """What is wrong with the sharded run, None where it equals plain PyTorch; and what it made."""
    want, got = want or run(program, "cpu"), None
    try:
        got = run(program, "spmdx", program.make_mesh())
        assert list(got) == list(want), f"made {sorted(got)} instead of {sorted(want)}"
        for name in want:
            assert_close(got[name], want[name], name, program.close)
    except Exception as error:  # noqa: BLE001 - whatever happens is reported with its seed
        return f"{type(error).__name__}: {error}", got
    return None, got


class Nudge:
    """Adds to every new float value an error as rounding makes it."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.seen = set()

    def __call__(self, space):
        for name, value in list(space.items()):
            if not NAME.fullmatch(name) or not is_smooth(value) or id(value) in self.seen:
                continue
            coarse, leaf = rounding_of([value]), value.is_leaf and value.requires_grad
            if value.numel() and (coarse or not leaf):
                noise = torch.randn(value.shape, dtype=value.dtype, generator=self.generator)
                noise *= max(1e-15, coarse) * (value.detach().abs().max() + 1e-3)
                if leaf:  # what is made of it in one line is rounded in between
                    value.data.add_(noise)
                else:
                    space[name] = value + noise
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


def is_rounding(program, want, got, tries=8):
    """Whether no result is further off than a few roundings of every value bring about."""
    nudged = [run(program, "cpu", nudge=Nudge(seed)) for seed in range(tries)]
    for name, value in want.items():
        if got[name].shape != value.shape or got[name].dtype != value.dtype:
            return False
        most = max(distance(other[name], value) for other in nudged)
        scale = float(value.abs().max()) if is_smooth(value) and value.numel() else 0.0
        if distance(got[name], value) > LEEWAY * most + program.close * scale:
            return False
    return True


def distance(a, b):
    """Of the two elements that are furthest apart."""
    wide = torch.complex128 if b.is_complex() else torch.float64
    return float((a.to(wide) - b.to(wide)).abs().max()) if b.numel() else 0.0


def judge(program):
    """(verdict, what is wrong): "equal", "unsteady" (rounding explains it) or "different".

    Also "refused": plain PyTorch has no gradient of these dtypes.
    """
    try:
        want = run(program, "cpu")
    except (RuntimeError, NotImplementedError) as error:
        return "refused", str(error)
    said, got = difference(program, want)
    if said is None:
        return "equal", None
    numbers = said.startswith("AssertionError") and list(got) == list(want)
    explains = is_rounding if program.rounding or ON_GPU else lambda p, w, g: is_unsteady(p, w)
    halves = ON_GPU and rounding_of(want.values()) > 1e-6  # rounded elsewhere within an op
    if numbers and (halves or explains(program, want, got)):
        return "unsteady", said
    return "different", said
