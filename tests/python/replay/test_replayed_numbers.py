# SPDX-License-Identifier: Apache-2.0
"""Numbers that change from call to call are followed, or the call is traced."""

import pytest
import spmdx
import torch


def numbers(call, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(call)).to("spmdx")


def test_numbers_that_are_equal_for_long_are_told_apart():
    weights = {"a": 1.0, "b": 1.0}
    x = numbers(0, 4)
    plain = lambda: x * weights["a"] + x.square() * weights["b"]  # noqa: E731
    compiled = spmdx.compile(plain)
    for call in range(60):
        weights["a"] = 1.0 / (1 + call)
        weights["b"] = weights["a"] if call < 30 else 0.5
        assert torch.equal(compiled().cpu(), plain().cpu()), call
    assert compiled.replayed >= 30, compiled.reasons


def test_a_difference_of_numbers_that_stays_for_long():
    weights = {"a": 1.0, "b": 1.0}
    x = numbers(0, 4)
    plain = lambda: x * (weights["a"] - weights["b"]) + x.square() * weights["a"]  # noqa: E731
    compiled = spmdx.compile(plain)
    for call in range(60):
        weights["a"] = 1.0 / (1 + call)
        weights["b"] = weights["a"] if call < 30 else 0.5
        assert torch.equal(compiled().cpu(), plain().cpu()), call


@pytest.mark.parametrize("every", [1, 3, 7, 20])
def test_a_number_that_changes_now_and_then(every):
    state = {"k": 1.0}
    x = numbers(0, 4).requires_grad_()

    def plain():
        x.grad = None
        loss = (x * state["k"]).square().sum()
        loss.backward()
        return loss.detach()

    compiled = spmdx.compile(plain)
    for call in range(70):
        state["k"] = 1.0 + call // every
        expected, gradient = plain().cpu(), x.grad.cpu()
        assert torch.equal(compiled().cpu(), expected), call
        assert torch.equal(x.grad.cpu(), gradient), call


def test_floats_that_are_arguments_are_no_structure():
    x = numbers(0, 4)
    plain = lambda x, lr, *, by=1.0: x * lr + x.square() * (1 - by) ** 2  # noqa: E731
    compiled = spmdx.compile(plain)
    for call in range(60):
        lr, by = 0.1 / (1 + call), 1.0 + call % 5
        assert torch.equal(compiled(x, lr, by=by).cpu(), plain(x, lr, by=by).cpu()), call
    assert compiled.replayed >= 45, compiled.reasons


@pytest.mark.parametrize("turn", [int, round, bool, str], ids=lambda f: f.__name__)
def test_a_float_on_which_more_depends_than_arithmetic(turn):
    x = numbers(0, 4)

    def plain(x, number):
        return x * len(str(turn(number)))

    compiled = spmdx.compile(plain)
    for call in range(40):
        number = float(call // 7 * 5)
        assert torch.equal(compiled(x, number).cpu(), plain(x, number).cpu()), call


def test_a_branch_on_a_float():
    x = numbers(0, 4)
    plain = lambda x, number: x * number if number > 0.5 else x + number  # noqa: E731
    compiled = spmdx.compile(plain)
    for call in range(60):
        number = abs(30 - call) / 30
        assert torch.equal(compiled(x, number).cpu(), plain(x, number).cpu()), call
    assert compiled.replayed >= 30, compiled.reasons


OF_TWO_NUMBERS = {
    "where": lambda x, a, b: torch.where(x > 0, a, b),
    "addmv": lambda x, a, b: torch.addmv(x, x.outer(x), x, alpha=a, beta=b),
    "clamp": lambda x, a, b: x.clamp(a - 2, b + 2),
    "foreach": lambda x, a, b: torch._foreach_mul([x, x + 1], [a, b]),
    "products": lambda x, a, b: a * x - x.square() * b,
}


@pytest.mark.parametrize("name", OF_TWO_NUMBERS)
@pytest.mark.filterwarnings("ignore:.*was compiled and is traced")
def test_two_numbers_of_one_op_that_are_equal_for_long(name):
    plain = OF_TWO_NUMBERS[name]
    compiled = spmdx.compile(plain)
    x = numbers(0, 4)
    for call in range(50):
        a = 1.0 + call % 3 if call < 20 else 2.0 + call % 5
        b = a if call < 20 else 0.5 + call % 2
        for got, expected in zip(leaves(compiled(x, a, b)), leaves(plain(x, a, b)), strict=True):
            assert torch.equal(got.cpu(), expected.cpu()), call


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def test_a_number_that_the_function_keeps_is_a_float():
    group = {"lr": 0.1}

    def plain(x, lr):
        group["lr"] = lr
        return x * group["lr"]

    compiled = spmdx.compile(plain)
    for call in range(20):
        lr = 0.1 / (1 + call)
        assert torch.equal(compiled(numbers(0, 4), lr).cpu(), numbers(0, 4).cpu() * lr)
        assert type(group["lr"]) is float and group["lr"] == lr


def test_a_count_on_the_host_that_another_variant_writes():
    steps = torch.zeros(())

    def plain(x, counts):
        if counts:
            steps.add_(1)
            return x * 2
        return x * steps

    compiled = spmdx.compile(plain)
    x = numbers(0, 4)
    count = 0.0
    for call in range(48):
        counts = call % 8 == 7 or call < 6
        count += counts
        assert torch.equal(compiled(x, counts).cpu(), x.cpu() * (2 if counts else count)), call


@pytest.mark.parametrize(
    "pattern", ["SSSSNNNNkNSSSSNNkNSSSNN", "NNNNSSSSkSNkSNNkNS", "SNSNSNkSNkSNkSN"]
)
@pytest.mark.parametrize("kind", ["alpha", "product", "gradient"])
def test_a_number_of_two_variants(pattern, kind):
    state = {"k": 0.75}
    w, twin = (torch.zeros(2).to("spmdx") for _ in range(2))

    def step(w, flag):
        if kind == "alpha":
            w.add_(1.0, alpha=state["k"])
        elif kind == "product":
            w.add_(torch.ones_like(w) * state["k"])
        else:
            leaf = w.detach().clone().requires_grad_()
            (leaf * state["k"]).sum().backward()
            w.add_(leaf.grad)

    compiled = spmdx.compile(step)
    for what in pattern * 3:
        if what == "k":
            state["k"] *= 0.5
            continue
        step(twin, what == "S")
        compiled(w, what == "S")
        assert torch.equal(w.cpu(), twin.cpu())
    assert compiled.replayed > 5, compiled.reasons


def test_a_branch_on_a_count_that_another_variant_writes():
    steps = torch.zeros(())

    def plain(x, counts):
        if counts:
            steps.add_(1)
            return x * 2
        return x * 3 if steps > 9 else x

    compiled = spmdx.compile(plain)
    x = numbers(0, 4)
    count = 0.0
    for call in range(60):
        counts = 10 <= call and call % 5 == 0
        count += counts
        expected = x.cpu() * (2 if counts else 3 if count > 9 else 1)
        assert torch.equal(compiled(x, counts).cpu(), expected), call
