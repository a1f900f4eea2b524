# SPDX-License-Identifier: Apache-2.0
"""Programs whose sizes change from step to step: their layouts are searched for once, and their
numbers are the CPU's."""

import sys
from pathlib import Path

import pytest
import spmdx
import torch
import torch.nn.functional as F
from spmdx import debug
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks" / "sizes"))
from routed_experts import Experts  # noqa: E402

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

MESHES = [(2, 1), (1, 3), (2, 2), (4, 2), (3, 1), (1, 8)]
pytestmark = pytest.mark.usefixtures("double_precision", "forgotten_plans")


def mesh_of(shape):
    return spmdx.Mesh(range(shape[0] * shape[1]), shape, ("data", "model"))


def searched():
    return debug.counters()["plans_searched"]


def assert_close(got, want):
    torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=1e-9, atol=1e-9)


# ---- a cache of keys and values that grows -----------------------------------------------------

WIDTH, HEADS, ROWS = 32, 4, 4


def decoded(weights, device, mark):
    """What each token of 24 gives, as the cache grows by a column for each."""
    generator = torch.Generator().manual_seed(1)
    weights = [weight.to(device) for weight in weights]
    for weight, spec in zip(weights, [(None, "model")] * 3 + [("model", None)], strict=True):
        mark(weight, spec)
    split = (ROWS, 1, HEADS, WIDTH // HEADS)
    keys = torch.zeros(ROWS, HEADS, 16, WIDTH // HEADS).to(device)
    values = torch.zeros(ROWS, HEADS, 16, WIDTH // HEADS).to(device)
    for cache in (keys, values):
        mark(cache, ("data", "model", None, None))
    given = []
    for _ in range(24):
        token = torch.randn(ROWS, 1, WIDTH, generator=generator).to(device)
        q, k, v = ((token @ weight).view(split).transpose(1, 2) for weight in weights[:3])
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        seen = F.scaled_dot_product_attention(q, keys, values)
        token = F.layer_norm(seen.transpose(1, 2).reshape(ROWS, 1, WIDTH) @ weights[3], (WIDTH,))
        given.append(token)
        if device == "spmdx":
            spmdx.mark_step()
    return given


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_a_cache_that_grows_is_searched_for_once(shape):
    torch.manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH) / 6 for _ in range(4)]
    with torch.no_grad():
        mesh = mesh_of(shape)
        got = decoded(weights, "spmdx", lambda t, spec: spmdx.mark_sharding(t, mesh, spec))
        assert debug.counters()["plans_compiled"] == 24
        assert searched() == 2  # the first step finds tensors that no step has laid out
        for ours, theirs in zip(got, decoded(weights, "cpu", lambda t, spec: t), strict=True):
            assert_close(ours, theirs)


# ---- routing -------------------------------------------------------------------------------------


def trained(model, device, mark, batches):
    model = model.to(device)
    for expert in getattr(model, "experts", [model]):
        mark(expert[0].weight, ("model", None))
        mark(expert[2].weight, (None, "model"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x in batches:
        x = x.to(device)
        mark(x, ("data", None))
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if device == "spmdx":
            spmdx.mark_step()
    return [*losses, *model.parameters()]


def compare(make, shape, batches):
    mesh = mesh_of(shape)
    torch.manual_seed(0)
    got = trained(make(), "spmdx", lambda t, spec: spmdx.mark_sharding(t, mesh, spec), batches)
    torch.manual_seed(0)
    for ours, theirs in zip(got, trained(make(), "cpu", lambda t, spec: t, batches), strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_routings_are_searched_for_once(shape):
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(48, 16, generator=generator) for _ in range(30)]

    def experts():
        return Experts(16, 32, 3)

    compare(experts, shape, batches[:3])
    parts, plans = searched(), debug.counters()["plans_compiled"]
    compare(experts, shape, batches)
    assert debug.counters()["plans_compiled"] - plans >= 30
    assert searched() - parts <= 3  # counts of none or one are programs of their own


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_batches_of_many_sizes_are_searched_for_once(shape):
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(rows, 16, generator=generator) for rows in range(24, 74)]

    def mlp():
        return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    compare(mlp, shape, [batches[8], *batches])
    # The first two steps find no momentum yet, or one that no step has laid out. After them a size
    # that divides evenly is searched for, and one that does not; and one 2.5 times as large.
    assert debug.counters()["plans_compiled"] >= 50 and searched() <= 6


# ---- what is no precedent ------------------------------------------------------------------------


def product(rows, mesh):
    x = torch.ones(rows, 16).to("spmdx")
    w = torch.ones(16, 16).to("spmdx")
    spmdx.mark_sharding(x, mesh, ("data", None))
    spmdx.mark_sharding(w, mesh, (None, "model"))
    y = (x @ w).sum()
    spmdx.mark_step()
    return y


def test_a_dim_of_more_than_two_and_a_half_times_the_size_is_another_program():
    mesh = mesh_of((2, 2))
    for rows, more in [(16, 1), (20, 0), (38, 0), (44, 1), (60, 0), (8, 0), (4, 1), (100, 0)]:
        before = searched()
        assert product(rows, mesh).item() == rows * 16 * 16
        assert searched() - before == more, rows


def test_sizes_that_divide_evenly_and_others_are_other_programs():
    mesh = mesh_of((4, 2))
    for rows, more in [(16, 1), (20, 0), (17, 1), (18, 0), (3, 1), (2, 0), (1, 1), (24, 0), (9, 0)]:
        before = searched()
        assert product(rows, mesh).item() == rows * 16 * 16
        assert searched() - before == more, rows


def test_sizes_that_no_input_has_count_as_well():
    mesh = mesh_of((2, 2))
    row, weight = torch.ones(1, 16).to("spmdx"), torch.ones(16, 16).to("spmdx")
    spmdx.mark_sharding(weight, mesh, (None, "model"))
    for rows, more in [
        (16, 1),
        (16, 1),
        (30, 0),
        (64, 1),
        (4096, 1),
        (2048, 0),
    ]:  # as uploaded, first
        before = searched()
        total = (row.expand(rows, 16) @ weight).sum()
        spmdx.mark_step()
        assert total.item() == rows * 16 * 16
        assert searched() - before == more, rows


def test_other_dims_of_as_many_elements_are_another_program():
    mesh = mesh_of((8, 1))
    for shape, more in [((64, 8), 1), ((32, 16), 0), ((16, 64), 1)]:
        before = searched()
        x = torch.ones(*shape, 4).to("spmdx")
        spmdx.mark_sharding(x, mesh, ("data", None, None))
        total = (x + 1).sum()
        spmdx.mark_step()
        assert total.item() == 2 * x.numel()
        assert searched() - before == more, shape


def test_what_fits_in_a_budget_of_gathers_is_looked_at_for_each_size():
    mesh = spmdx.Mesh(range(8), (8,), ("data",))

    def step(rows):
        tables = [torch.randn(rows, 32).to("spmdx").requires_grad_() for _ in range(3)]
        weights = [torch.randn(32, 32).to("spmdx").requires_grad_() for _ in range(3)]
        for table in tables:
            spmdx.mark_sharding(table, mesh, (None, "data"))
        x = torch.randn(64, 32).to("spmdx")
        for tensor in (*weights, x):
            spmdx.mark_sharding(tensor, mesh, ("data", None))
        for table, weight in zip(tables, weights, strict=True):
            x = torch.tanh(torch.tanh(x @ table.T) @ table) @ weight
        x.pow(2).mean().backward()
        kept = [tensor.grad for tensor in tables + weights]
        spmdx.mark_step()
        return spmdx.explain().wire_bytes, len(kept)

    spmdx.set_gather_budget(20_000)
    try:
        step(32)
        after_another = step(64)
        spmdx._C.clear_cache()
        assert step(64) == after_another
    finally:
        spmdx.set_gather_budget(0)


def test_a_plan_that_is_found_often_is_searched_for_after_all():
    mesh = mesh_of((2, 2))
    for _ in range(100):
        assert product(16, mesh).item() == 16 * 16 * 16
    assert searched() == 1
    for steps in range(100):
        assert product(20, mesh).item() == 20 * 16 * 16
        assert searched() == 1 + (steps >= 64), steps
    assert debug.counters()["plans_compiled"] - searched() == 1


def test_a_cleared_cache_has_no_precedents():
    mesh = mesh_of((2, 2))
    product(16, mesh), product(20, mesh)
    assert searched() == 1
    spmdx._C.clear_cache()
    product(18, mesh)
    assert searched() == 2


def test_other_cuts_are_another_program():
    product(16, mesh_of((2, 2))), product(17, mesh_of((4, 1))), product(18, mesh_of((1, 4)))
    assert searched() == 3


def test_what_is_only_planned_is_searched_for():
    mesh = mesh_of((2, 2))
    product(16, mesh)
    with spmdx.plan_only():
        product(20, mesh)
    assert searched() == 2
    product(18, mesh)
    assert searched() == 2
