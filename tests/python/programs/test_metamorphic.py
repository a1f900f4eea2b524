# SPDX-License-Identifier: Apache-2.0
"""The same sharding said in the words of another mesh gives the same results for the same bytes."""

import numpy
import program_oracle
import pytest
import random_programs as programs
import spmdx
import torch
from models import assert_equal
from torch import nn

PROGRAMS = range(500_000, 500_060)


def transposed(ids, shape, axes):
    """The axes in another order, every device with the coordinates it had."""
    order = list(range(len(shape)))[::-1]
    turned = numpy.array(ids).reshape(shape).transpose(order)
    mesh = spmdx.Mesh(turned.ravel().tolist(), turned.shape, tuple(axes[i] for i in order))
    return mesh, lambda spec: spec


def with_an_axis_of_one(ids, shape, axes):
    mesh = spmdx.Mesh(ids, (*shape[:1], 1, *shape[1:]), (*axes[:1], "one", *axes[1:]))
    return mesh, lambda spec: spec


def in_two_axes(ids, shape, axes):
    """Every axis of 4, 6 or 8 as two: 8 = 2 × 4."""
    sizes, names, parts = [], [], {}
    for size, axis in zip(shape, axes, strict=True):
        parts[axis] = (axis,) if size in (2, 3) else (axis, f"{axis}_minor")
        names += parts[axis]
        sizes += [size] if size in (2, 3) else [2, size // 2]

    def respec(spec):
        entries = [() if e is None else e if isinstance(e, tuple) else (e,) for e in spec]
        return tuple(tuple(p for axis in entry for p in parts[axis]) or None for entry in entries)

    return spmdx.Mesh(ids, tuple(sizes), tuple(names)), respec


VARIANTS = {f.__name__: f for f in (transposed, with_an_axis_of_one, in_two_axes)}


def run(program, mesh, respec=lambda spec: spec):
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    found = program_oracle.run(program, "spmdx", mesh, respec=respec)
    spmdx.sync(wait=True)
    return found, spmdx.debug.counters()["wire_bytes"]


def programs_on(shapes):
    drafted = [programs.draft(seed, mixed=False) for seed in PROGRAMS]
    return [p for p in drafted if p.mesh[1] in shapes]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_mesh_in_other_words_gives_the_same_results(variant):
    for program in programs_on({(4,), (8,), (2, 2), (4, 2), (2, 2, 2), (2, 3)}):
        plain, _ = run(program, program.make_mesh())
        mesh, respec = VARIANTS[variant](*program.mesh, program.axes)
        other, _ = run(program, mesh, respec)
        for name, want in plain.items():
            assert_equal(other[name], want, f"{name} of seed {program.seed} on {mesh}")


@pytest.mark.parametrize("variant", ["transposed", "with_an_axis_of_one"])
def test_a_mesh_in_other_words_moves_the_same_bytes(variant):
    moved = 0
    for program in programs_on({(4,), (8,), (2, 2), (4, 2), (2, 2, 2), (2, 3)}):
        _, plain = run(program, program.make_mesh())
        mesh, respec = VARIANTS[variant](*program.mesh, program.axes)
        _, other = run(program, mesh, respec)
        assert other == plain, f"seed {program.seed} on {mesh}: {other} bytes, not {plain}"
        moved += plain
    assert moved > 10_000


def train(mesh, cut, layout):
    """(parameters, bytes) after three steps of an MLP whose sizes 8 divides."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).double().to("spmdx")
    specs = {
        "data": {},
        "fully sharded": {"0.weight": (cut, None), "2.weight": (None, cut), "0.bias": (cut,)},
        "tensor": {"0.weight": (cut, None), "0.bias": (cut,), "2.weight": (None, cut)},
    }[layout]
    for name, spec in specs.items():
        spmdx.mark_sharding(model.get_parameter(name), mesh, spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    for seed in range(3):
        x = torch.randn(24, 16, generator=torch.Generator().manual_seed(seed)).double().to("spmdx")
        if layout != "tensor":
            spmdx.mark_sharding(x, mesh, (cut, None))
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
    spmdx.sync(wait=True)
    moved = spmdx.debug.counters()["wire_bytes"]
    return {n: p.detach().cpu() for n, p in model.named_parameters()}, moved


@pytest.mark.parametrize("layout", ["data", "fully sharded", "tensor"])
def test_an_axis_of_eight_is_two_times_four(layout):
    one = spmdx.Mesh(range(8), (8,), ("x",))
    two = spmdx.Mesh(range(8), (2, 4), ("a", "b"))
    want, bytes_of_one = train(one, "x", layout)
    got, bytes_of_two = train(two, ("a", "b"), layout)
    assert bytes_of_one == bytes_of_two > 1000
    for name, value in want.items():
        assert_equal(got[name], value, name)
