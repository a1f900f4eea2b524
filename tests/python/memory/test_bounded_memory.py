# SPDX-License-Identifier: Apache-2.0
"""Loops that go on for ever hold bounded memory: bytes and plans are counted."""

import warnings

import pytest
import spmdx
import torch
from hardware import ON_GPU
from torch import nn

MiB = 1 << 20
SUMS = {"rtol": 1e-4, "atol": 1e-3} if ON_GPU else {}  # of 80,000 numbers, in another order there
SWEPT = 16 * MiB  # uploads after which those of dead values are let go of


@pytest.fixture(autouse=True)
def fresh():
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    yield
    spmdx.sync(wait=True)


def held():
    return spmdx.debug.counters()["trace_bytes"]


def uploads(count, rows=256):
    """Batches of ``rows`` KiB each."""
    torch.manual_seed(3)
    for _ in range(count):
        yield torch.randn(rows, 256)


def test_batches_that_nobody_reads_are_let_go_of():
    most = 0
    layer = nn.Linear(256, 4)
    ours = nn.Linear(256, 4).to("spmdx")
    ours.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for batch in uploads(60, rows=4096):  # of 4 MiB
            y, want = ours(batch.to("spmdx")), layer(batch)
            most = max(most, held())
    assert spmdx.debug.counters()["steps"] == 0
    assert most <= 2 * SWEPT
    torch.testing.assert_close(y.cpu(), want)


def test_batches_that_a_live_value_needs_stay_until_it_is_computed():
    total, want = torch.zeros(256, device="spmdx"), torch.zeros(256)
    for batch in uploads(20, rows=4096):
        total += batch.to("spmdx").sum(0)
        want += batch.sum(0)
    assert held() >= 20 * 4 * MiB
    torch.testing.assert_close(total.cpu(), want, **SUMS)
    assert held() == 0


def test_what_views_and_writes_still_read_is_not_let_go_of():
    x = torch.ones(64, 4).to("spmdx")
    row, flat = x[3], x.view(-1)
    kept = torch.full((8,), 5.0).to("spmdx") * 2  # a dead upload's value lives on
    for batch in uploads(12, rows=4096):
        dead = batch.to("spmdx").tanh()
        row += batch[0, :4].to("spmdx")
    want = torch.ones(64, 4)
    for batch in uploads(12, rows=4096):
        want[3] += batch[0, :4]
    torch.testing.assert_close(flat.cpu(), want.view(-1))
    assert torch.equal(kept.cpu(), torch.full((8,), 10.0)) and dead.shape == (4096, 256)


def test_a_plan_does_not_depend_on_what_was_let_go_of():
    """The same program, with and without another holder of what nobody needs, has one plan."""
    plans = []
    for keep in (False, True):
        holder = []
        for batch in uploads(6, rows=4096):
            there = batch.to("spmdx")
            y = there.sum()
            if keep:
                holder.append(there)
        del there
        spmdx.mark_step()
        plans.append(spmdx.debug.counters()["plans_compiled"])
        assert y.item() == pytest.approx(batch.sum().item(), rel=1e-3)
    assert plans == [1, 1]


def test_a_loop_of_sums_is_cut_by_bytes_into_equal_pieces():
    total, want, most = torch.zeros((), device="spmdx"), 0.0, 0
    batch = torch.randn(16384, 256)  # 16 MiB
    for _ in range(170):
        total += batch.to("spmdx").sum()
        want += batch.sum().item()
        most = max(most, held())
    counters = spmdx.debug.counters()
    # At 1 GiB, then each half GiB, where the loop begins again.
    assert counters["implicit_syncs"] == 4
    assert counters["plans_compiled"] <= 2 and counters["plan_cache_hits"] >= 2
    assert most <= 1024 * MiB + 32 * MiB
    assert total.item() == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("end", [spmdx.mark_step, lambda: torch.ones(1, device="spmdx").item()])
def test_a_long_step_that_the_program_ends_is_not_cut_where_it_repeats_itself(end):
    for _ in range(3):
        batches = [torch.ones(16384, 256).to("spmdx") for _ in range(40)]  # 640 MiB
        total = torch.zeros((), device="spmdx")
        for batch in batches:
            total += batch.sum()
        before = spmdx.debug.counters()["steps"]
        end()
        spmdx.sync(wait=True)
        assert spmdx.debug.counters()["steps"] == before + 1
        assert total.item() == 40 * 16384 * 256
    assert spmdx.debug.counters()["plan_cache_hits"] >= 2


def train(device, steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).double().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(16, 8, dtype=torch.float64).to(device)
    for _ in range(steps):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def test_a_training_loop_that_never_reads_is_cut_into_equal_steps_of_one_plan():
    model = train("spmdx", 5500)
    counters = spmdx.debug.counters()
    assert counters["implicit_syncs"] >= 5
    # The first piece is longer; the second begins in the middle of an iteration, with other inputs.
    assert counters["plans_compiled"] <= 3
    assert counters["plan_cache_hits"] == counters["implicit_syncs"] - counters["plans_compiled"]
    for got, want in zip(model.parameters(), train("cpu", 5500).parameters(), strict=True):
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("marked", [False, True])
def test_two_thousand_short_steps_hold_what_few_hold(marked):
    def loop(steps):
        model = train("spmdx", 0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for batch in uploads(steps, rows=16):
            loss = model(batch[:, :8].double().to("spmdx")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.mark_step() if marked else loss.item()
        spmdx.sync(wait=True)
        counters = spmdx.debug.counters()
        return {k: v for k, v in counters.items() if k.endswith("_kept") or k == "trace_bytes"}

    few = loop(20)
    assert loop(2000) == few


def test_plans_are_kept_by_their_bytes():
    layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(1500)]).to("spmdx")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of a program that is planned again and again
        for rows in range(1, 120):
            y = layers(torch.ones(rows, 4).to("spmdx"))
            spmdx.mark_step()
        spmdx.sync(wait=True)
        counters = spmdx.debug.counters()
        again = layers(torch.ones(119, 4).to("spmdx"))  # the latest is there
        spmdx.sync(wait=True)
    assert counters["plans_compiled"] >= 119
    assert 128 * MiB < counters["plan_bytes_kept"] <= 264 * MiB
    assert 8 <= counters["plans_kept"] < 119
    after = spmdx.debug.counters()
    assert after["plan_cache_hits"] == counters["plan_cache_hits"] + 1
    assert torch.equal(again.cpu(), y.cpu())
