# SPDX-License-Identifier: Apache-2.0
"""What the check of rules takes for equal: rounding, of terms that cancel too, no more."""

import pytest
import spmdx
import torch
from spmdx._rules.closeness import closeness, difference, leeway_of
from spmdx._rules.shards import parts_of

NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32)
TERMS = torch.tensor([[1.0e4, -1.0e4, 0.5, -0.5], [3.0e3, 1.0, -3.0e3, -1.0]])


def said(found, wanted):
    return difference(
        found, wanted, closeness([wanted]), lambda: leeway_of(lambda ops: ops[0].sum(1), [TERMS])
    )


def test_cancelling_terms_may_be_off_by_their_own_rounding():
    wanted = TERMS.sum(1)
    rounding = 1e4 * torch.finfo(torch.float32).eps
    assert not said(wanted + rounding, wanted)
    assert difference(wanted + rounding, wanted, closeness([wanted]))


@pytest.mark.parametrize("error", [0.5, 1e4 * 1e-4, torch.inf, torch.nan])
def test_what_is_more_than_rounding_is_a_difference(error):
    assert said(TERMS.sum(1) + error, TERMS.sum(1))


def test_an_infinity_is_not_a_large_number():
    largest = torch.tensor([torch.finfo(torch.float32).max, 1.0])
    found = torch.tensor([torch.inf, 1.0])
    assert difference(found, largest, closeness([largest]))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_dtypes_are_compared(dtype):
    wanted = torch.linspace(-3, 3, 12).to(dtype)
    other = wanted.to(torch.complex64 if dtype.is_complex else torch.float32).mul(1.5).to(dtype)
    assert not difference(wanted, wanted, closeness([wanted]))
    assert difference(other, wanted, closeness([wanted]))


@pytest.mark.parametrize("reduction", ["sum", "prod"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_give_the_whole_at_the_ends_of_the_range(reduction, count):
    ends = torch.finfo(torch.float32)
    value = torch.tensor([ends.min, ends.max, -torch.inf, torch.inf, 0.0, 1e30, -7.0])
    combine = torch.add if reduction == "sum" else torch.mul
    parts = parts_of(value, reduction, count)
    whole = parts[0]
    for part in parts[1:]:
        whole = combine(whole, part)
    torch.testing.assert_close(whole, value, rtol=1e-5, atol=0)


def test_a_ctc_loss_is_judged_but_for_memory_that_it_leaves():
    scores = torch.randn(9, 6, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    targets = torch.randint(1, 5, (6, 4), generator=torch.Generator().manual_seed(1))
    lengths = [9, 8, 9, 7, 9, 9], [4, 3, 2, 2, 1, 1]
    found = spmdx.check_rule("aten::_ctc_loss", (scores, targets, *lengths, 0, False))
    assert found.tried == 6
