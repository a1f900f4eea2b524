# SPDX-License-Identifier: Apache-2.0
"""Rules of users' own ops: registered, used, checked; what is wrong with one is said."""

import itertools
import os
import subprocess
import sys
import textwrap

import pytest
import spmdx
import torch
from composites import least_work

MESHES = ((2,), (3,), (4,), (8,), (4, 2))
count = itertools.count()


def define(function, fake, formula=None):
    """A custom op of its own, so that no test sees the rule of another."""
    op = torch.library.custom_op(f"rules_test::op{next(count)}", function, mutates_args=())
    op.register_fake(fake)
    if formula is not None:
        op.register_autograd(formula[1], setup_context=formula[0])
    return op


def weigh(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return x @ weights


def weighing():
    return define(weigh, lambda x, weights: x.new_empty(x.shape[:1]))


def centre(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


def centring():
    return define(centre, lambda x: torch.empty_like(x))


def on_mesh(op, tensors, specs, shape):
    names = ("x", "y")[: len(shape)]
    mesh = spmdx.Mesh(range(torch.Size(shape).numel()), shape, names)
    placed = [
        spmdx.mark_sharding(t.to("spmdx"), mesh, s) for t, s in zip(tensors, specs, strict=True)
    ]
    spmdx.mark_step()
    return op(*placed)


@pytest.mark.parametrize("rows", [24, 7])
@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_a_registered_rule_runs_shards_and_gathers_nothing(shape, rows):
    op = weighing()
    spmdx.register_rule(op, "bs,s->b", linear="each")
    tensors = [torch.rand(rows, 5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)]
    y = on_mesh(op, tensors, [("x", None), (None,)], shape)
    report = spmdx.explain(y)
    assert report.wire_bytes == 0 and not report.fallbacks
    torch.testing.assert_close(y.cpu(), weigh(*tensors), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_a_reduced_letter_makes_a_sum(shape):
    op = weighing()
    spmdx.register_rule(op, "bs,s->b", linear="each")
    tensors = [torch.rand(6, 24, dtype=torch.float64), torch.rand(24, dtype=torch.float64)]
    with least_work():
        y = on_mesh(op, tensors, [(None, "x"), ("x",)], shape)
        report = spmdx.explain(y)
    assert [c.kind for c in report.collectives] == ["all_reduce"]
    torch.testing.assert_close(y.cpu(), weigh(*tensors), rtol=1e-12, atol=1e-12)


def test_without_a_rule_the_op_is_taken_apart():
    op = define(weigh, lambda x, weights: x.new_empty(x.shape[:1]))
    tensors = [torch.rand(8, 5), torch.rand(5)]
    y = on_mesh(op, tensors, [("x", None), (None,)], (4,))
    torch.testing.assert_close(y.cpu(), weigh(*tensors))


def test_gradients_flow_through_an_op_with_a_rule():
    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def back(ctx, upstream):
        x, weights = ctx.saved_tensors
        return upstream[:, None] * weights, x.T @ upstream

    op = define(weigh, lambda x, weights: x.new_empty(x.shape[:1]), (keep, back))
    spmdx.register_rule(op, "bs,s->b", linear="each")
    tensors = [torch.rand(9, 5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)]
    upstream = torch.rand(9, dtype=torch.float64)
    wanted = torch.autograd.grad(op(*[t.requires_grad_() for t in tensors]), tensors, upstream)
    mesh = spmdx.get_1d_mesh("x")
    placed = [t.detach().to("spmdx").requires_grad_() for t in tensors]
    spmdx.mark_sharding(placed[0], mesh, ("x", None))
    found = torch.autograd.grad(op(*placed), placed, upstream.to("spmdx"))
    for here, there in zip(found, wanted, strict=True):
        torch.testing.assert_close(here.cpu(), there, rtol=1e-12, atol=1e-12)


def test_a_right_rule_is_confirmed_and_a_wrong_one_refused():
    right, wrong = centring(), centring()
    spmdx.register_rule(right, "ab!->ab")
    with pytest.raises(
        spmdx.ShardingError, match=r"the rule of rules_test::op\d+ is wrong in \d+ of"
    ):
        spmdx.check_rule(right, (torch.rand(6, 5),))
    spmdx.register_rule(right, "a!b->ab", linear="joint")  # registered again: the latest counts
    found = spmdx.check_rule(right, (torch.rand(6, 5),), find_missed=True)
    assert found.tried >= 10 and not found.missed
    spmdx.register_rule(wrong, "a!b->ab", linear="movement")  # a maximum does not pass
    with pytest.raises(spmdx.ShardingError, match="partial max"):
        spmdx.check_rule(wrong, (torch.rand(6, 5),))


def test_what_a_rule_misses_is_listed_with_bytes():
    op = weighing()
    spmdx.register_rule(op, "b!s,s->b", linear="each")
    missed = spmdx.check_rule(op, (torch.rand(6, 4), torch.rand(4)), find_missed=True).missed
    assert missed["f32[6@x, 4], f32[4] -> f32[6@x]"] == 6 * 4 * 4 // 2


@pytest.mark.parametrize(
    "rule, said",
    [
        ("bs,s", "has no ->"),
        ("bs->b", "is for 1 tensor operands, the op has 2"),
        ("bs,s->b,b", "is for 2 tensor results, the op has 1"),
        ("bs,s^->b", "has a '^'"),
        ("bs,!s->b", "has a '!' behind no letter"),
        ("bb,s->b", "names 'b' twice"),
        ("bs,s->k", "has a result dim 'k' that no operand has"),
    ],
)
def test_letters_that_are_no_rule_are_refused(rule, said):
    op = weighing()
    with pytest.raises(spmdx.ShardingError) as error:
        spmdx.register_rule(op, rule)
    assert said in str(error.value) and "test_register_rule.py" in str(error.value)


def test_other_mistakes_are_named():
    op = weighing()
    for wrong, said in [
        (lambda: spmdx.register_rule("nobody::knows", "a->a"), "no op is called 'nobody::knows'"),
        (lambda: spmdx.register_rule("aten::mm", "mk,kn->mn"), "has a rule in spmdx's own table"),
        (lambda: spmdx.register_rule("aten::einsum", "a->a"), "is made of other ops"),
        (lambda: spmdx.register_rule(op, "bs,s->b", linear="very"), "'very' is no linearity"),
        (lambda: spmdx.register_rule(op, "bs,s->b", reduction="mean"), "'mean' is no reduction"),
        (lambda: spmdx.register_rule(3, "a->a"), "the op is a int"),
        (lambda: spmdx.check_rule("aten::linalg_matrix_exp", (torch.eye(3),)), "has no rule"),
        (lambda: spmdx.check_rule("aten::einsum", ("ab->b", [torch.eye(3)])), "records"),
    ]:
        with pytest.raises(spmdx.ShardingError) as error:
            wrong()
        assert said in str(error.value) and "test_register_rule.py" in str(error.value)


def test_a_call_that_the_letters_do_not_fit_is_an_error_of_the_step():
    op = define(weigh, lambda x, weights: x.new_empty(x.shape[:-1]))
    spmdx.register_rule(op, "bs,s->b")
    y = on_mesh(op, [torch.rand(2, 8, 5), torch.rand(5)], [("x", None, None), (None,)], (2,))
    with pytest.raises(
        spmdx.ShardingError, match=r"the rule 'bs,s->b' of .* does not fit f32\[2, 8, 5\]"
    ):
        spmdx.explain(y)
    with pytest.raises(spmdx.ShardingError):
        spmdx.mark_step()


PROGRAM = """
    import spmdx, torch

    @torch.library.custom_op("late::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2
    double.register_fake(lambda x: torch.empty_like(x))
    mesh = spmdx.get_1d_mesh("x")
    def bytes_of_it():
        x = spmdx.mark_sharding(torch.ones(16, 4).to("spmdx"), mesh, ("x", None))
        spmdx.mark_step()
        y = double(x)
        return spmdx.explain(y).wire_bytes, y.cpu().sum().item()
    spmdx.register_rule("late::double", "a!b!->ab")
    print(bytes_of_it())
    spmdx.register_rule("late::double", "*->*")
    print(bytes_of_it())
"""


def test_a_rule_counts_from_the_next_plan_on():
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        env={**os.environ, "SPMDX_NUM_DEVICES": "4"},
        timeout=300,
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == [f"({16 * 4 * 4 * 3 // 4}, 128.0)", "(0, 128.0)"]


def test_an_op_that_reads_its_own_step_is_an_error_and_no_wait():
    ones = torch.ones(3).to("spmdx")

    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * (ones + 1).sum().item()

    op = define(reads, torch.empty_like)
    spmdx.register_rule(op, "a->a")
    y = op(torch.ones(2).to("spmdx"))
    with pytest.raises(RuntimeError, match="a kernel uses a tensor of device spmdx"):
        y.cpu()
    assert ((ones + 1).sum() * 2).item() == 12
