# SPDX-License-Identifier: Apache-2.0
"""Functions of all kinds: what they are given and return, memory that is shared, numbers."""

import copy
import gc
import weakref

import pytest
import spmdx
import torch
from replays import Program, run_twins
from torch import nn


def numbers(call, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(call)).to("spmdx")


def of_tensors(function, *shapes):
    """A program of a function of tensors of its own and of arguments."""

    def make():
        tensors = [numbers(i, *shape) for i, shape in enumerate(shapes)]
        return Program(lambda *args: function(*tensors, *args), tensors=tensors)

    return make


def cached(cache, at, row):
    cache[:, at] = row
    return (cache * 2).sum(1)


def in_place(x):
    x.mul_(0.5).add_(1)
    return x * 3


FUNCTIONS = {
    "a cache that is written": (lambda cache, x: cached(cache, 3, x), [(4, 8)], [(4,)]),
    "results of all kinds": (lambda w, x: {"a": [x * w, None], "b": ("s", 2, x)}, [(4,)], [(4,)]),
    "an argument that is written": (lambda w, x: in_place(x), [(4,)], [(4,)]),
    "state that is written and returned": (lambda w, x: w.add_(x), [(4,)], [(4,)]),
    "views of state": (lambda w, x: (w[1:3].mul_(0.9), w.view(2, 2), w), [(4,)], [(4,)]),
    "the same result twice": (lambda w, x: [y := x + w, y, y[1:]], [(4,)], [(4,)]),
    "random numbers": (lambda w, x: torch.rand_like(x) * w, [(4,)], [(4,)]),
    "integers": (lambda w, x: (x * 10).int() + 1, [(4,)], [(4,)]),
    "complex numbers": (lambda w, x: torch.complex(x, w).abs(), [(4,)], [(4,)]),
    "no elements": (lambda w, x: x[:0] * 2, [(4,)], [(4,)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_does_what_it_does_when_it_is_traced(name):
    function, state, arguments = FUNCTIONS[name]
    step = run_twins(
        of_tensors(function, *state), lambda call: tuple(numbers(call, *s) for s in arguments), 24
    )
    assert step.replayed >= 16, step.reasons


def test_arguments_that_share_memory_go_on_sharing_it():
    base, twin = (numbers(0, 8) for _ in range(2))
    compiled = spmdx.compile(lambda x: (base.add_(1), x * 2)[1])
    for _ in range(20):
        expected = (twin.add_(1), twin[2:6] * 2)[1].cpu()
        assert torch.equal(compiled(base[2:6]).cpu(), expected)
        assert torch.equal(base.cpu(), twin.cpu())
    assert compiled.replayed >= 16


def test_an_argument_that_is_changed_within_is_changed():
    def plain(batch):
        batch["out"] = batch.pop("x") * 2
        return batch["out"]

    compiled = spmdx.compile(plain)
    for call in range(8):
        batch = {"x": numbers(call, 4)}
        compiled(batch)
        assert list(batch) == ["out"]
    assert compiled.replayed == 0 and "it changes an argument" in compiled.reasons


def test_a_list_that_was_there_before_is_returned_itself():
    kept = []
    compiled = spmdx.compile(lambda x: (x + 1, kept))
    assert all(compiled(numbers(0, 4))[1] is kept for _ in range(6))


class Layer:
    def __init__(self, by):
        self.by = torch.tensor(by).to("spmdx")

    @spmdx.compile
    def scaled(self, x):
        return x * self.by

    @classmethod
    @spmdx.compile
    def doubled(cls, x):
        return x * 2

    @staticmethod
    @spmdx.compile
    def halved(x):
        return x / 2


def test_methods_of_objects_and_classes():
    layers = [Layer(2.0), Layer(3.0)]
    x = numbers(0, 4)
    for _ in range(8):
        for layer in layers:
            assert torch.equal(layer.scaled(x).cpu(), x.cpu() * layer.by.cpu())
        assert torch.equal(Layer.doubled(x).cpu(), x.cpu() * 2)
        assert torch.equal(Layer.halved(x).cpu(), x.cpu() / 2)
    assert [layer.scaled.replayed for layer in layers] == [5, 5]
    assert Layer.doubled.replayed == Layer.halved.replayed == 5
    alive = weakref.ref(layers.pop())
    del layer
    gc.collect()
    assert alive() is None


def test_a_module_is_a_function_too():
    model = nn.Linear(4, 4).to("spmdx").requires_grad_(False)
    compiled = spmdx.compile(model)
    x = numbers(0, 2, 4)
    for _ in range(6):
        assert torch.equal(compiled(x).cpu(), model(x).cpu())
    assert compiled.replayed >= 3


def shrunk(x):
    return x * 0.5


def test_copies_start_anew():
    compiled = spmdx.compile(shrunk)
    x = numbers(0, 4)
    for _ in range(5):
        compiled(x)
    for other in (copy.deepcopy(compiled), copy.copy(compiled)):
        assert torch.equal(other(x).cpu(), x.cpu() * 0.5)
    assert compiled.replayed == 2


def test_a_compiled_function_within_another_is_seen():
    state = {"k": 1}
    inner = spmdx.compile(lambda x: x * state["k"])
    outer = spmdx.compile(lambda x: inner(x) + 1)
    x = numbers(0, 4)
    for call in range(20):
        state["k"] = 1 + call // 8
        assert torch.equal(outer(x).cpu(), x.cpu() * state["k"] + 1), call


def test_hooks_that_come_later_run():
    w = numbers(0, 4).requires_grad_()
    seen = []

    def plain(x):
        w.grad = None
        (w * x).sum().backward()
        return x * 2

    compiled = spmdx.compile(plain)
    x = numbers(1, 4)
    w.register_hook(lambda gradient: gradient * 2)
    for call in range(24):
        if call == 12:
            w.register_post_accumulate_grad_hook(lambda t: seen.append(1))
        compiled(x)
        assert torch.equal(w.grad.cpu(), x.cpu() * 2)
    assert len(seen) == 12


def test_an_error_in_a_replayed_step_is_raised_and_leaves_what_a_traced_one_leaves():
    table = numbers(0, 5, 3)
    counts = [numbers(1, 1) for _ in range(2)]

    def counting(count):
        def plain(ids):
            count.add_(1)
            return nn.functional.embedding(ids, table)

        return plain

    functions = counting(counts[0]), spmdx.compile(counting(counts[1]))
    good, bad = (torch.tensor(ids).to("spmdx") for ids in ([0, 4], [0, 5]))
    for call in range(20):
        for function in functions:
            if call in (9, 10, 14):
                with pytest.raises(IndexError):
                    function(bad).cpu()
            else:
                assert torch.equal(function(good).cpu(), table.cpu()[[0, 4]])
        assert torch.equal(counts[0].cpu(), counts[1].cpu()), call
    assert functions[1].replayed >= 10


def test_an_error_of_the_function_is_its_own():
    def plain(x, fails):
        y = x * 2
        if fails:
            raise KeyError("a")
        return y

    compiled = spmdx.compile(plain)
    x = numbers(0, 4)
    for call in range(12):
        if call % 3 == 2:
            with pytest.raises(KeyError):
                compiled(x, True)
        else:
            assert torch.equal(compiled(x, False).cpu(), x.cpu() * 2)
    assert compiled.replayed >= 4


def test_within_accumulate_the_function_runs():
    model = nn.Linear(4, 1).to("spmdx")
    plain = lambda x: model(x).sum().backward()  # noqa: E731
    compiled = spmdx.compile(plain)
    for _ in range(4):
        model.zero_grad()
        compiled(numbers(0, 2, 4))
    replayed = compiled.replayed
    with spmdx.accumulate(model):
        for call in range(2):
            compiled(numbers(call, 2, 4))
            spmdx.mark_step()
    assert compiled.replayed == replayed


def test_memory_does_not_grow():
    w = numbers(0, 64).requires_grad_()
    optimizer = torch.optim.Adam([w], lr=0.1)

    @spmdx.compile
    def step(x):
        optimizer.zero_grad()
        loss = (w * x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def objects():
        gc.collect()
        return len(gc.get_objects())

    for call in range(20):
        step(numbers(call, 64))
    before = objects()
    for call in range(200):
        step(numbers(call, 64))
    assert objects() - before < 200
    assert step.replayed > 200


class Shy:
    """An object whose class fails where it is looked at from outside."""

    __slots__ = ("by",)

    def __getattribute__(self, name):
        if name == "by":
            return 2.0
        raise RuntimeError("not now")


def test_state_that_cannot_be_looked_at_is_no_error():
    shy = Shy()
    compiled = spmdx.compile(lambda x: x * shy.by)
    for _ in range(5):
        assert torch.equal(compiled(numbers(0, 4)).cpu(), numbers(0, 4).cpu() * 2)


def test_what_is_done_to_an_argument_but_for_its_values():
    def drops_its_gradient(x):
        x.grad = None
        return x * 2

    def turns(x):
        return x.t_() * 2

    def asks_for_gradients(x):
        return x.requires_grad_().detach() * 2

    for plain in (drops_its_gradient, turns, asks_for_gradients):
        compiled = spmdx.compile(plain)
        for call in range(12):
            tensors = [numbers(call, 3, 3) for _ in range(2)]
            for x in tensors:
                if call % 2 and plain is drops_its_gradient:
                    x.requires_grad_().grad = x.detach() * 3
            assert torch.equal(plain(tensors[0]).cpu(), compiled(tensors[1]).cpu()), call
            for x, y in zip(*([t] for t in tensors), strict=True):
                assert x.stride() == y.stride() and x.requires_grad == y.requires_grad
                assert (x.grad is None) == (y.grad is None)
