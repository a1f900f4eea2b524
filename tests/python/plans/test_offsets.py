# SPDX-License-Identifier: Apache-2.0
"""Ints that move from step to step, where parts begin: one plan has the CPU's numbers for all."""

import random

import pytest
import spmdx
import torch
from spmdx import debug

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

DEVICES = [1, 2, 3, 4, 8]
pytestmark = pytest.mark.usefixtures("forgotten_plans")


def _mesh(devices: int) -> spmdx.Mesh:
    return spmdx.Mesh(range(devices), (devices,), ("x",))


def _whole(*shape: int, seed: int = 0) -> torch.Tensor:
    """Small integers as floats: sums of their products are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).float()


def _put(tensor: torch.Tensor, devices: int, spec: tuple) -> torch.Tensor:
    there = tensor.clone().to("spmdx")
    return spmdx.mark_sharding(there, _mesh(devices), spec)


def _same(got: torch.Tensor, expected: torch.Tensor) -> None:
    there = got.detach().cpu()
    assert torch.equal(there, expected.detach()), (there, expected)


def _plans() -> tuple[int, int]:
    counters = debug.counters()
    return counters["plans_compiled"], counters["plan_cache_hits"]


# ---- a resident data set -----------------------------------------------------------------------


def _trained(data: torch.Tensor, weight: torch.Tensor, k: int, batch: int) -> torch.Tensor:
    loss = (data[k : k + batch] @ weight).relu().sum()
    loss.backward()
    gradient, weight.grad = weight.grad, None
    return gradient


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("spec", [(None, None), (None, "x")], ids=["whole", "cut features"])
def test_300_offsets_of_a_data_set_are_one_plan(devices, spec):
    data, weight = _whole(616, 7), _whole(7, 5, seed=1)
    here, w = _put(data, devices, spec), _put(weight, devices, (None, None)).requires_grad_()
    weight.requires_grad_()
    spmdx.sync(wait=True)
    debug.reset_counters()
    for epoch in range(2):
        got = [_trained(here, w, k, 16) for k in range(0, 600, 2) if spmdx.mark_step() is None]
        spmdx.sync(wait=True)
        assert _plans()[0] <= 2, _plans()
        if epoch == 0:
            first = _plans()
    assert _plans()[1] - first[1] >= 300 and _plans()[0] == first[0]
    for k, gradient in zip(range(0, 600, 2), got, strict=True):
        _same(gradient, _trained(data, weight, k, 16))


@pytest.mark.parametrize("devices", DEVICES)
def test_offsets_through_narrow_select_and_steps_are_one_plan(devices):
    data = _whole(40, 6)
    here = _put(data, devices, (None, "x"))
    spmdx.sync(wait=True)
    debug.reset_counters()
    acts = [
        lambda t, k: t.narrow(0, k, 5) * 2,
        lambda t, k: t[k] * 2,
        lambda t, k: t.select(0, k) + 1,
        lambda t, k: t[k : k + 9 : 2] * 3,
        lambda t, k: torch.arange(k, k + 6, device=t.device) * 2,
        lambda t, k: (t[0] > k) | (t[1] <= k - 20),
    ]
    for act in acts:
        debug.reset_counters()
        for k in [0, 3, 30, 1, 17, 31]:
            got = act(here, k)
            spmdx.sync(wait=True)
            _same(got, act(data, k))
        assert _plans() == (1, 5)


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("rows", [41, 40], ids=["uneven", "even"])
def test_short_reads_of_a_cut_dim_are_one_plan(devices, rows):
    data, weight = _whole(rows, 6), _whole(6, 3, seed=1)
    here, w = _put(data, devices, ("x", None)), _put(weight, devices, (None, None)).requires_grad_()
    weight.requires_grad_()
    spmdx.sync(wait=True)
    debug.reset_counters()
    for k in range(rows - 4):
        gradient = _trained(here, w, k, 4)
        spmdx.mark_step()
        _same(gradient, _trained(data, weight, k, 4))
    assert _plans()[0] == 1


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("spec", [("x", None), (None, "x")], ids=["cut", "whole"])
def test_gradients_of_moving_parts_are_one_plan(devices, spec):
    data = _whole(13, 10)
    here = _put(data, devices, spec).requires_grad_()
    data.requires_grad_()
    spmdx.sync(wait=True)
    debug.reset_counters()
    for k in range(10):
        for x in (here, data):
            x.grad = None
            (x[k : k + 3].square().sum() + (x[12 - k] * 3).sum()).backward()
        spmdx.mark_step()
        _same(here.grad, data.grad)
    assert _plans()[0] == 1


@pytest.mark.parametrize("devices", [2, 3, 8])
def test_long_reads_of_a_cut_dim_are_right_at_any_offset(devices):
    data = _whole(96, 3)
    here = _put(data, devices, ("x", None))
    spmdx.sync(wait=True)
    debug.reset_counters()
    for compiled in (6, 6):  # one for each place, which the second round finds
        for k in [0, 1, 12, 33, 24, 1, 48]:
            got = here[k : k + 48] * 2
            spmdx.mark_step()
            _same(got, data[k : k + 48] * 2)
        assert _plans()[0] == compiled


# ---- buffers that are written in place ---------------------------------------------------------


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize(
    "spec", [("x", None), (None, "x"), (None, None)], ids=["cut", "row", "whole"]
)
def test_a_ring_buffer_is_one_plan(devices, spec):
    ring, sample = torch.zeros(11, 6), torch.tensor([0, 3, 10, 3])
    here, there = _put(ring, devices, spec), sample.to("spmdx")
    spmdx.sync(wait=True)
    debug.reset_counters()
    for i in range(40):
        x = _whole(6, seed=i)
        ring[i % 11] = x
        here[i % 11] = x.to("spmdx")
        got = here[there].sum(0)
        spmdx.mark_step()
        _same(got, ring[sample].sum(0))
    _same(here, ring)
    assert _plans()[0] <= 2  # after the first step the ring lies as it is written


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("spec", [("x", None, None), (None, "x", None), (None, None, "x")])
def test_a_static_cache_is_one_plan(devices, spec):
    keys = torch.zeros(4, 21, 8)
    here = _put(keys, devices, spec)
    spmdx.sync(wait=True)
    debug.reset_counters()
    for p in range(20):
        new = _whole(4, 8, seed=p)
        results = []
        for cache, k in ((here, new.to("spmdx")), (keys, new)):
            cache[:, p] = k
            cache[:, p : p + 2] += 1
            scores = torch.einsum("bd,btd->bt", k, cache)
            mask = torch.arange(21, device=cache.device) > p
            results.append(scores.masked_fill(mask, -torch.inf).max(-1).values)
        spmdx.mark_step()
        _same(*results)
    _same(here, keys)
    assert _plans()[0] <= 2


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("spec", [("x", None), (None, "x")])
def test_writes_to_parts_of_parts_are_one_plan(devices, spec):
    board = torch.zeros(9, 10)
    here = _put(board, devices, spec)
    spmdx.sync(wait=True)
    debug.reset_counters()
    for i in range(24):
        for t in (here, board):
            t[i % 7 : i % 7 + 3][:, (i * 3) % 8 : (i * 3) % 8 + 2] = i
            t[(i * 5) % 9, (i * 7) % 10] = -i
        spmdx.mark_step()
        _same(here, board)
    assert _plans()[0] <= 2


# ---- windows -----------------------------------------------------------------------------------


def _carried(x, u, v, state):
    for t in range(x.shape[1]):
        state = (x[:, t] @ u + state @ v).clamp(-4, 4)
    return state


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("batch", [8, 5], ids=["even", "uneven"])
def test_truncated_windows_are_one_plan(devices, batch):
    x, u, v = _whole(batch, 40, 3), _whole(3, 4, seed=1), _whole(4, 4, seed=2)
    here = _put(x, devices, ("x", None, None))
    model = [_put(w, devices, (None, None)).requires_grad_() for w in (u, v)]
    plain = [w.requires_grad_() for w in (u, v)]
    states = [torch.zeros(batch, 4).to("spmdx"), torch.zeros(batch, 4)]
    spmdx.sync(wait=True)
    debug.reset_counters()
    for k in range(0, 36, 3):
        for i, (data, weights) in enumerate(((here, model), (x, plain))):
            for w in weights:
                w.grad = None
            state = _carried(data[:, k : k + 4], *weights, states[i])
            state.sum().backward()
            states[i] = state.detach()
        spmdx.mark_step()
        _same(*states)
        for ours, theirs in zip(model, plain, strict=True):
            _same(ours.grad, theirs.grad)
    assert _plans()[0] <= 2  # the first state is new data, the others are results


# ---- several at once ---------------------------------------------------------------------------


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("spec", [("x", None), (None, "x")])
@pytest.mark.parametrize("first", [(2, 2), (2, 6)], ids=["equal first", "apart first"])
def test_equal_and_distinct_places_do_not_share_a_wrong_plan(devices, spec, first):
    data = _whole(12, 5)
    here = _put(data, devices, spec)
    spmdx.sync(wait=True)
    debug.reset_counters()
    for a, b in [first, (2, 6), (2, 2), (3, 4), (7, 7), (0, 8), (6, 2), (5, 5)]:
        got = here[a : a + 3] * 2 + here[b : b + 3]
        spmdx.mark_step()
        _same(got, data[a : a + 3] * 2 + data[b : b + 3])
    assert _plans()[0] == (2 if first == (2, 2) else 1)


def _several(tensor: torch.Tensor, rng: random.Random) -> list[torch.Tensor]:
    """Reads and writes of parts of one tensor, at places that `rng` draws in a fixed order."""
    results = []
    for kind in "rwrsarwzr":
        a, b = rng.randrange(9), rng.randrange(10)
        if kind == "r":
            results.append(tensor[a : a + 3] + tensor[b : b + 1])
        elif kind == "w":
            tensor[a : a + 3] = tensor[b % 9 : b % 9 + 3] + 1
        elif kind == "s":
            tensor[a] = tensor[b] * 2
        elif kind == "a":
            tensor[a : a + 3].add_(tensor[b] * 2)
        else:
            tensor[a : a + 2][1:, 1:3] *= -1
    return results


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("spec", [("x", None), (None, "x"), (None, None)])
def test_places_that_overlap_or_not_give_the_numbers_of_the_cpu(devices, spec):
    plain = _whole(12, 6)
    here = _put(plain, devices, spec)
    for seed in range(60):
        expected, got = _several(plain, random.Random(seed)), _several(here, random.Random(seed))
        spmdx.mark_step()
        for ours, theirs in zip(got, expected, strict=True):
            _same(ours, theirs)
        _same(here, plain)
        plain.clamp_(-9, 9)
        here.clamp_(-9, 9)
    compiled, hits = _plans()
    assert hits > compiled  # the relations between places are not part of a plan


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("spec", [("x", None), (None, "x"), (None, None)])
@pytest.mark.parametrize("first", [0, 3], ids=["none first", "some first"])
def test_rolls_of_whole_dims_are_one_plan(devices, spec, first):
    """A shift along a cut dim is structure: blocks go elsewhere."""
    x, weight = _whole(24, 7), _whole(7, 5, seed=1)
    here, w = _put(x, devices, spec), _put(weight, devices, (None, None)).requires_grad_()
    weight.requires_grad_()
    spmdx.sync(wait=True)
    debug.reset_counters()
    for k in [first, 3 - first, -5, 40, 7, 23, -31]:
        found = []
        for data, by in ((here, w), (x, weight)):
            rolled = data.roll(k, 0) * 2 + data.roll((k + 1, 2 * k), (0, 1))
            (rolled @ by).roll(k, 0)[:4].sum().backward()
            found += [rolled, data.roll(k), by.grad]
            by.grad = None
        spmdx.mark_step()
        for one, other in zip(found[:3], found[3:], strict=True):
            _same(one, other)
    if devices == 1 or spec == (None, None):
        assert _plans()[0] <= 4
