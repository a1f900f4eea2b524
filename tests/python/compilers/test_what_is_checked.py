# SPDX-License-Identifier: Apache-2.0
"""The first run of a kernel is compared: what is wrong is found, and what only rounds is kept."""

import compilers_of_tests as broken
import pytest
import spmdx
import torch

LOWEST = torch.finfo(torch.float32).min


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


def masked(value):
    def attend(x):
        scores = (x @ x.mT) / 3
        hidden = torch.ones(6, 6, dtype=torch.bool, device=x.device).tril().logical_not()
        return scores.masked_fill(hidden, value).softmax(-1)

    return attend


def added_mask(x):
    scores = (x @ x.mT) * 0.3
    mask = torch.zeros(6, 6, device=x.device).masked_fill(scores > 2, -1e9)
    return (scores + mask).softmax(-1).exp()


PROGRAMS = {
    "mask": masked(-1e9),
    "lowest": masked(LOWEST),
    "infinite": masked(float("-inf")),
    "added mask": added_mask,
    "large and small": lambda x: torch.tanh(x * 1e20).mul(0.5).exp(),
    "norm": lambda x: torch.nn.functional.layer_norm(x * 1e6, (5,)).sigmoid(),
}
ROUNDED = PROGRAMS | {
    "cancels": lambda x: ((x * 1e4 + 3e6) - 3e6).mul(1e-4),
    "sum that cancels": lambda x: (x - x.mean(0)).mul(1e5).sum(0).mul(2.0),
    "variance": lambda x: (x + 1000).var(0).sqrt() * 3,
    "product that cancels": lambda x: (x.mT @ x - x.mT.clone() @ x.clone() * 0.999999).mul(1e3),
    "many terms": lambda x: (x.repeat(1, 400).cumsum(1) - 1).sin().sum(1),
    "compared": lambda x: ((x * 3).sin() > 0.1).to(torch.float32).mul(2.0),
    "counted": lambda x: ((x * 100).round() / 3).to(torch.int64),
}


def standing_after(compiler, program):
    """What became of the segments of a program, and what it gave beside what PyTorch does."""
    x = drawn(6, 5)
    spmdx.set_compiler(compiler, compile_now=True)
    found = program(x.to("spmdx"))
    spmdx.mark_step()
    found = found.cpu()
    segments = spmdx.explain().segments.segments
    assert segments
    return {s.state for s in segments}, found, program(x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_off_is_found_beside_numbers_that_are_huge(name):
    with pytest.warns(UserWarning, match="is not that of PyTorch's kernels"):
        states, found, expected = standing_after(broken.IsOffByASixteenth(), PROGRAMS[name])
    assert "refused" in states
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ROUNDED)
def test_what_only_rounds_otherwise_is_kept(name):
    states, _, _ = standing_after(broken.RoundsOtherwise(), ROUNDED[name])
    assert states == {"compiled"}


def test_the_check_draws_none_of_the_programs_random_numbers():
    def program(compiler):
        spmdx.set_compiler(compiler, compile_now=True)
        torch.manual_seed(11)
        first = (torch.ones(4, device="spmdx") * 3).exp().mul(2.0).sum()
        spmdx.mark_step()
        return first.cpu(), torch.rand(3), torch.rand(3, device="spmdx").cpu()

    assert all(map(torch.equal, program(broken.OpByOp()), program(None)))


def test_an_error_within_a_segment_names_its_op_and_refuses_nothing():
    table = drawn(4, 3).to("spmdx")

    def look_up(index):
        y = table * 2
        z = y.exp().log()
        w = torch.nn.functional.embedding(index, z)  # the line
        return (w + w).sum(0)

    line = look_up.__code__.co_firstlineno + 3
    good = torch.tensor([0, 3]).to("spmdx")
    spmdx.set_compiler(broken.OpByOp(), compile_now=True)
    expected = look_up(good).cpu()
    with pytest.raises(IndexError, match="out of range") as caught:
        look_up(torch.tensor([0, 7]).to("spmdx")).cpu()
    assert f"test_what_is_checked.py:{line}" in "\n".join([str(caught.value), *notes_of(caught)])
    assert torch.equal(look_up(good).cpu(), expected)
    (segment,) = spmdx.explain().segments.segments
    assert segment.state == "compiled"


def notes_of(caught):
    return getattr(caught.value, "__notes__", [])
