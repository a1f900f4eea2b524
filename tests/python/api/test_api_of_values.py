# SPDX-License-Identifier: Apache-2.0
"""Factories and ops whose results depend on values give what they give on the CPU."""

import pytest
import spmdx
import torch
from api_cases import Cases, draw
from hardware import WRONG_INDICES
from torch import nn

case = Cases()


@case
def cpu_index(d):
    return draw(d, 4, 4)[torch.tensor([0, 2])]


@case
def sums_without_nans_of_no_dims(d):
    x = draw(d, 2, 3)
    return torch.nansum(x, dim=[]) + torch.nansum(x, dim=(), keepdim=True)


@case
def item_in_the_middle(d):
    x = draw(d, 4)
    y = x * 2
    if y.sum().item() > 0:
        y = y + 1
    return y, bool((y > 0).any()), y.tolist()


@case
def data_dependent_shapes(d):
    x = draw(d, 12).round()
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    n = torch.tensor([1, 0, 2], device=d)
    return (
        (x > 0).nonzero(), x[x > 0], x.masked_select(x < 0), values, inverse, counts,
        torch.repeat_interleave(n), torch.bincount(n), torch.equal(x, x), x.unique_consecutive(),
        torch.allclose(x, x), draw(d, 3, 4)[:, torch.tensor([True, False, True, True], device=d)],
    )  # fmt: skip


@case
def foreach_ops(d):
    return torch._foreach_norm([draw(d, 3), draw(d, 4)]), torch._foreach_add([draw(d, 3)], 1.5)


@case
def complex_numbers(d):
    x = torch.view_as_complex(draw(d, 3, 2))
    y = (x * x.conj()).real + x.abs()
    torch.view_as_real(x).mul_(2)
    return torch.view_as_real(x), y, torch.fft.fft(draw(d, 4)).abs()


@case
def factories(d):
    ints = torch.arange(5, device=d), torch.full((2,), 3, device=d), torch.eye(3, device=d)
    like = torch.zeros_like(draw(d, 2)), draw(d, 2).new_ones(3), torch.full((2,), True, device=d)
    line = torch.linspace(0, 1, 5, device=d), torch.arange(0, 1, 0.25, device=d)
    return ints, like, line, torch.tensor([1, 2], device=d), torch.tril_indices(3, 3, device=d)


@case
def printed(d):
    x = draw(d, 3)
    return repr(x).split(", device")[0].rstrip(")")


@case
def histogram_of_ints(d):
    x = torch.tensor([1, 2, 2, 3], device=d)
    return torch.histc(x if d != "cpu" else x.float(), bins=3, min=1, max=3).long()


@pytest.mark.parametrize("name", sorted(case))
def test_gives_what_the_cpu_gives(name):
    case.check(name)


def test_random_state_is_saved_and_restored():
    spmdx.manual_seed(3)
    state = torch.spmdx.get_rng_state()
    first = torch.rand(4, device="spmdx").cpu()
    assert not torch.equal(first, torch.rand(4, device="spmdx").cpu())
    torch.spmdx.set_rng_state(state)
    assert torch.equal(first, torch.rand(4, device="spmdx").cpu())
    own = torch.Generator(device="spmdx").manual_seed(3)
    assert torch.equal(first, torch.rand(4, device="spmdx", generator=own).cpu())
    with torch.random.fork_rng(devices=[0], device_type="spmdx"):
        torch.rand(4, device="spmdx")


def test_tensors_of_two_devices_raise_as_eager_does():
    x = torch.ones(2, device="spmdx")
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(2)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3]


def test_wrong_shapes_raise_at_the_call():
    with pytest.raises(RuntimeError, match="shape|size"):
        torch.ones(2, 3, device="spmdx") @ torch.ones(2, 3, device="spmdx")
    with pytest.raises(RuntimeError, match="cast"):
        torch.ones(2, dtype=torch.int64, device="spmdx").add_(0.5)


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_a_kernel_error_names_op_and_line_and_loses_nothing():
    m = nn.Embedding(4, 2).to("spmdx")
    before = m.weight.detach().cpu().clone()
    counter = torch.zeros(1, device="spmdx")
    spmdx.mark_step()
    counter.add_(1)
    bad = m(torch.tensor([9], device="spmdx"))
    with pytest.raises(IndexError, match=r"test_api_of_values\.py:\d+: aten\.embedding: .*range"):
        bad.sum().item()
    assert torch.equal(m.weight.detach().cpu(), before)
    assert counter.item() in (0, 1)
    assert m(torch.tensor([1], device="spmdx")).shape == (1, 2)


def test_many_pending_ops_are_cut_and_freed():
    x = torch.zeros(1, device="spmdx")
    for _ in range(60_000):
        x = x + 1
    assert x.item() == 60_000


def test_tensors_of_two_meshes_raise_a_sharding_error_at_the_op_that_waits():
    spmdx.runtime.set_device_count(max(4, spmdx.runtime.global_runtime_device_count()))
    meshes = spmdx.Mesh(range(4), (4,), ("a",)), spmdx.Mesh(range(4), (2, 2), ("b", "c"))
    x, y = (torch.ones(8, 8, device="spmdx") for _ in meshes)
    spmdx.mark_sharding(x, meshes[0], ("a", None))
    spmdx.mark_sharding(y, meshes[1], ("b", None))
    with pytest.raises(spmdx.ShardingError, match="two meshes.*a=4.*b=2"):
        (x + y).sum().item()
    assert torch.ones(2, device="spmdx").sum().item() == 2
