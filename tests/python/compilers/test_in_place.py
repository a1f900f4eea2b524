# SPDX-License-Identifier: Apache-2.0
"""Results that replace what they were made of are written over it, and nothing else changes."""

import pytest
import spmdx
import torch
from spmdx._segments.segment import Segment
from spmdx.compilers import graph_module

SWAPPED = """%0 = input f32[4]
%1 = input f32[4]
%2 : f32[4] = aten.alias(%1)
%3 : f32[4] = aten.alias(%0)
%4 : f32[2, 2] = aten.view(%0, [2, 2])
return %2 tied %0 donates
return %3 tied %1 donates
return %4
"""


def test_views_of_what_is_written_over_keep_its_old_numbers():
    segment = Segment.parse(SWAPPED)
    assert segment.over == (0, 1, -1)
    a, b = torch.arange(4.0), torch.arange(4.0) + 10
    old_a, old_b = a.clone(), b.clone()
    (view,) = graph_module(segment)(a, b)
    assert torch.equal(a, old_b) and torch.equal(b, old_a)
    assert torch.equal(view, old_a.view(2, 2))


def trained(x, steps=4):
    """States of an optimizer by hand, what other tensors have had of them, and what is swapped."""
    p, m = x.clone(), torch.zeros_like(x)
    kept, seen = [], p[1:]
    for step in range(steps):
        kept.append(p + 1)
        m.mul_(0.9).add_(p * 0.1).clamp_(-5, 5)
        p.sub_(m * 0.5).mul_(1.01)
        if step == 2:
            p, m = m, p
        yield
    yield [p, m, seen, *kept]


@pytest.mark.parametrize("mesh", [None, 3])
def test_states_and_what_others_hold_of_them_are_those_of_pytorch(mesh):
    spmdx.set_compiler("inductor", compile_now=True)
    x = torch.linspace(-2, 2, 40).reshape(10, 4)
    *_, expected = trained(x)
    placed = x.to("spmdx")
    if mesh:
        axis = spmdx.Mesh(range(mesh), (mesh,), ("data",))
        placed = spmdx.mark_sharding(placed, axis, ("data", None))
    donated, results = 0, []
    for result in trained(placed):
        results.append(result)
        spmdx.mark_step()
        spmdx.sync(wait=True)
        donated += sum(s.text.count("donates") for s in spmdx.explain().segments.segments)
    for mine, theirs in zip(results[-1], expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-6, atol=1e-6)
    assert donated > 0


def test_a_state_that_the_program_holds_twice_is_not_written_over():
    spmdx.set_compiler("inductor", compile_now=True)
    p = torch.linspace(-1, 1, 64).to("spmdx")
    spmdx.mark_step()
    for _ in range(3):
        before = p
        p = before.mul(0.5).add(1).tanh()  # another tensor: the old one is held as well
        spmdx.mark_step()
        spmdx.sync(wait=True)
        held, new = before.cpu(), p.cpu()
        torch.testing.assert_close(new, held.mul(0.5).add(1).tanh())
