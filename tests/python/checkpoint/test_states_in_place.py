# SPDX-License-Identifier: Apache-2.0
"""Values from the host go into the memory that a tensor has; torch.save reads it where it lies."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import spmdx
import torch
from hardware import WRONG_INDICES

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


def _allocated(run: Callable[[], object]) -> int:
    """Bytes of memory that a call asks for, whether or not it gives them back."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run()
    events: Any = profile.profiler.kineto_results.events()
    return sum(max(0, event.nbytes()) for event in events if event.name() == "[memory]")


def _at_rest(*shape: int, devices: int = 8, spec=("data",), dtype=torch.float32) -> torch.Tensor:
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    tensor = torch.zeros(*shape, dtype=dtype).to("spmdx")
    spmdx.mark_sharding(tensor, mesh, (*spec, *[None] * (len(shape) - len(spec))))
    spmdx.sync(wait=True)
    return tensor


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("shape", [(16, 3), (7, 5), (5,)])
@pytest.mark.parametrize("cut", [True, False])
def test_a_loaded_state_takes_the_memory_of_the_old(devices, shape, cut):
    tensor = _at_rest(*shape, devices=devices, spec=("data",) if cut else (None,))
    steps = spmdx.debug.counters()["steps"]
    host = torch.randn(shape)
    assert _allocated(lambda: tensor.copy_(host)) == 0
    expected = host.clone()
    host.zero_()  # which the device does not see
    assert torch.equal(tensor.cpu(), expected)
    assert spmdx.debug.counters()["steps"] == steps


def test_a_model_loads_without_a_step():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16)).to("spmdx")
    mesh = spmdx.Mesh(range(8), (8,), ("data",))
    spmdx.mark_sharding(model[0].weight, mesh, ("data", None))
    spmdx.sync(wait=True)
    other = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16))
    spmdx.debug.reset_counters()
    assert _allocated(lambda: model.load_state_dict(other.state_dict())) == 0
    assert spmdx.debug.counters()["steps"] == 0
    for name, value in other.state_dict().items():
        assert torch.equal(model.state_dict()[name].cpu(), value)


@pytest.mark.parametrize("queued", [True, False])
def test_who_reads_the_old_values_still_sees_them(queued):
    tensor = _at_rest(8, 4)
    tensor.fill_(2)
    spmdx.sync(wait=True)
    twin, twice = tensor.detach().clone(), tensor * 2
    if queued:
        spmdx.mark_step()
    tensor.copy_(torch.full((8, 4), 5.0))
    assert twin.sum().item() == 64 and twice.sum().item() == 128 and tensor.sum().item() == 160


def test_views_see_what_was_written():
    tensor = _at_rest(8, 4)
    row = tensor[3]
    assert row.tolist() == [0] * 4 and (row + 1).sum().item() == 4
    tensor.copy_(torch.arange(32.0).reshape(8, 4))
    assert row.tolist() == [12, 13, 14, 15] and (row + 1).sum().item() == 58


def test_autograd_notices_that_a_saved_value_was_overwritten():
    weight = _at_rest(8, 4).requires_grad_()
    loss = (weight * weight).sum()
    with torch.no_grad():
        weight.copy_(torch.ones(8, 4))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_values_of_other_types_and_layouts_are_copied_as_in_eager():
    tensor = _at_rest(8, 4, 2, 2)
    host = torch.randn(8, 4, 2, 2)
    tensor.copy_(host.to(memory_format=torch.channels_last))
    assert torch.equal(tensor.cpu(), host)
    tensor.copy_(host.double())
    assert torch.equal(tensor.cpu(), host)
    tensor.copy_(host[:1])
    assert torch.equal(tensor.cpu(), host[:1].expand(8, 4, 2, 2))
    complex_ = _at_rest(8, dtype=torch.complex64)
    complex_.copy_(torch.full((8,), 1j).conj())
    assert complex_[1].item() == -1j


def test_a_shard_that_somebody_holds_is_not_written():
    tensor = _at_rest(8)
    held = tensor.local_shards[1].data
    tensor.copy_(torch.ones(8))
    assert held.tolist() == [0] and tensor.tolist() == [1] * 8


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_a_failed_step_takes_back_what_was_loaded_beside_it():
    tensor = _at_rest(8)
    index = torch.tensor([9]).to("spmdx")
    bad = torch.ones(4, device="spmdx").index_select(0, index)
    tensor.copy_(torch.ones(8))
    with pytest.raises((IndexError, RuntimeError)):
        bad.cpu()
    assert tensor.tolist() == [0] * 8


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.on_the_cpu("local shards are copies there")
def test_saved_states_do_not_change_with_what_is_trained_on(cut):
    tensor = _at_rest(64, 64, spec=("data",) if cut else (None,))
    tensor.fill_(3)
    spmdx.sync(wait=True)
    reduced = tensor.detach().__reduce_ex__(2)
    file = io.BytesIO()
    saved = {"whole": tensor, "row": tensor[3:5]}
    assert _allocated(lambda: torch.save(saved, file)) < (2 if cut else 1) * tensor.nbytes
    tensor.add_(1)
    spmdx.sync(wait=True)
    tensor.copy_(torch.full((64, 64), 9.0))
    size = file.tell()
    file.seek(0)
    loaded = torch.load(file)
    assert torch.equal(loaded["whole"].cpu(), torch.full((64, 64), 3.0))
    assert torch.equal(loaded["row"].cpu(), torch.full((2, 64), 3.0))
    function, arguments = reduced[0], reduced[1]
    assert torch.equal(
        function(*arguments[:4]).cpu() if cut else function(*arguments).cpu(),
        torch.full((64, 64), 3.0),
    )
    assert size < 2 * 64 * 64 * 4


def test_a_part_of_a_memory_is_saved_without_the_rest():
    rows = torch.arange(4096.0).to("spmdx")
    spmdx.sync(wait=True)
    part = rows[:4].clone()
    file = io.BytesIO()
    torch.save(part, file)
    assert file.tell() < 4096
    file.seek(0)
    assert torch.load(file).tolist() == [0, 1, 2, 3]
