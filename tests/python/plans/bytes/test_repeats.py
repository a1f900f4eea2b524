# SPDX-License-Identifier: Apache-2.0
"""A program that is planned again and again for one shape is told so, once."""

import re
import warnings

import pytest
import spmdx
import torch
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def mesh():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    return spmdx.Mesh(range(4), (4,), ("data",))


def said_by(step, count):
    """The warnings of so many steps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(count):
            step(n)
    spmdx.sync(wait=True)
    return [str(warning.message) for warning in caught]


def trained(mesh, rows):
    model = torch.nn.Linear(5, 3).to("spmdx")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(n):
        x, y = torch.randn(rows(n), 5).to("spmdx"), torch.randint(3, (rows(n),)).to("spmdx")
        spmdx.mark_sharding(x, mesh, ("data", None))
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
        spmdx.mark_step()

    return step


def test_another_batch_size_each_time_is_told_once(mesh):
    (said,) = said_by(trained(mesh, lambda n: 20 + n), 30)
    assert re.match(r"test_repeats\.py:\d+: aten\.\w+", said), said
    assert "reads an input that has another shape from step to step" in said
    assert re.search(r"lately (i64|f32)\[\d\d(, 5)?\], ", said) and " plans were made" in said
    assert "drop_last=True" in said


def test_few_batch_sizes_and_other_numbers_are_not_worth_a_word(mesh):
    assert said_by(trained(mesh, lambda n: 40 + n % 5), 30) == []


def test_a_slice_that_grows_is_told(mesh):
    cache = spmdx.mark_sharding(torch.randn(4, 64, 7).to("spmdx"), mesh, ("data", None, None))
    spmdx.mark_step()

    def step(n):
        (cache[:, : n + 3] * 2).sum().item()

    (said,) = said_by(step, 20)
    assert re.match(r"test_repeats\.py:\d+: aten\.slice\.Tensor has other arguments", said), said


def rolling(cache):
    def step(n):
        (cache[n] + cache.roll(n, 0)).sum().item()

    return step


def test_a_number_that_changes_is_told_though_no_shape_does(mesh):
    cache = spmdx.mark_sharding(torch.zeros(64, 8).to("spmdx"), mesh, ("data", None))
    (said,) = said_by(rolling(cache), 20)
    assert "aten.roll has other arguments from step to step (lately aten.roll(" in said
    assert "Make a tensor of a number that changes" in said


def test_a_roll_of_a_whole_dim_is_no_plan_and_not_told(mesh):
    assert said_by(rolling(torch.zeros(64, 8).to("spmdx")), 20) == []


def test_an_index_that_changes_is_no_plan_and_not_told(mesh):
    cache = torch.zeros(64, 8).to("spmdx")

    def step(n):
        cache[n] = torch.ones(8).to("spmdx")
        spmdx.mark_step()

    assert said_by(step, 20) == []


def test_parts_that_are_read_here_and_there_are_not_worth_a_word(mesh):
    x = torch.randn(30, 4).to("spmdx")
    spmdx.mark_step()
    assert said_by(lambda n: x[n].tolist(), 20) == []


def test_two_programs_are_told_of_apart(mesh):
    def step(n):
        (torch.randn(100 + n, 2).to("spmdx").exp().sum() + 1).item()
        (torch.randn(100 + n, 2).to("spmdx").cos().prod() - 1).item()

    assert len(said_by(step, 12)) == 2
