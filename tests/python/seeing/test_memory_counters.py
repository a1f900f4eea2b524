# SPDX-License-Identifier: Apache-2.0
"""torch.spmdx.memory_allocated and its like tell what one device holds, now and at most."""

import gc

import pytest
import spmdx
import torch

CUDA = ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats", "memory_reserved")


@pytest.fixture(scope="module", autouse=True)
def devices():
    if spmdx.runtime.global_runtime_device_count() < 8:
        spmdx.runtime.set_device_count(8)


@pytest.fixture(autouse=True)
def nothing_is_left():
    gc.collect()
    spmdx.sync(wait=True)
    yield
    spmdx._C.set_checks()


def mesh_of(size):
    return spmdx.Mesh(range(size), (size,), ("x",))


@pytest.mark.parametrize("rows", [24, 25])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_tensor_counts_with_its_largest_shard(size, rows):
    before = torch.spmdx.memory_allocated()
    whole = torch.ones(rows, 5).to("spmdx")
    assert torch.spmdx.memory_allocated() - before == rows * 5 * 4
    cut = spmdx.mark_sharding(torch.ones(rows, 5).to("spmdx") * 2, mesh_of(size), ("x", None))
    spmdx.mark_step()
    largest = -(-rows // size)
    assert torch.spmdx.memory_allocated() - before == rows * 5 * 4 + largest * 5 * 4
    assert spmdx.debug.local_bytes(cut) == largest * 5 * 4
    del whole
    assert torch.spmdx.memory_allocated() - before == largest * 5 * 4
    del cut
    gc.collect()
    assert torch.spmdx.memory_allocated() == before


@pytest.mark.parametrize("size", [1, 4, 8])
def test_a_training_state_is_what_local_bytes_says(size):
    before = torch.spmdx.memory_allocated()
    model = torch.nn.Linear(16, 24).to("spmdx")
    spmdx.fully_shard(model, mesh_of(size), axis="x")
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(8, 16).to("spmdx")).sum().backward()
        optimizer.step()
        spmdx.mark_step()
    optimizer.zero_grad()
    spmdx.mark_step()
    gc.collect()
    held = torch.spmdx.memory_allocated() - before
    assert held == spmdx.debug.local_bytes([model, optimizer])


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_peak_is_what_a_step_was_measured_to_hold(size):
    x = spmdx.mark_sharding(torch.ones(48, 64).to("spmdx"), mesh_of(size), ("x", None))
    spmdx.sync(wait=True)
    spmdx._C.set_checks(memory=True)
    before = torch.spmdx.memory_allocated()
    torch.spmdx.reset_peak_memory_stats()
    assert torch.spmdx.max_memory_allocated() == before
    y = (x @ torch.ones(64, 512).to("spmdx")).exp().sum()
    spmdx.sync(wait=True)
    inputs = -(-48 // size) * 64 * 4 + 64 * 512 * 4  # x, and the weights that the step reads
    outside = before - -(-48 // size) * 64 * 4
    measured = spmdx._C.measured_peak_bytes()
    assert measured > inputs + -(-48 // size) * 512 * 4
    assert torch.spmdx.max_memory_allocated() == outside + measured
    assert torch.spmdx.memory_allocated() < torch.spmdx.max_memory_allocated()
    assert y.item() > 0


def test_the_peak_stays_until_it_is_reset():
    torch.spmdx.reset_peak_memory_stats()
    before = torch.spmdx.memory_allocated()
    big = torch.ones(1000).to("spmdx")
    del big
    assert torch.spmdx.memory_allocated() == before
    assert torch.spmdx.max_memory_allocated() == before + 4000
    torch.spmdx.reset_max_memory_allocated()
    assert torch.spmdx.max_memory_allocated() == before


def test_what_overwrites_its_input_counts_once():
    x = torch.ones(1000).to("spmdx")
    spmdx.sync(wait=True)
    before = torch.spmdx.memory_allocated()
    for _ in range(3):
        x.add_(1)
        spmdx.mark_step()
    assert torch.spmdx.memory_allocated() == before
    assert x[0].item() == 4


def test_steps_that_are_only_planned_hold_nothing():
    before = torch.spmdx.memory_allocated()
    with spmdx.plan_only():
        x = torch.ones(1 << 20, 1 << 10).to("spmdx") * 2
        spmdx.mark_step()
        assert torch.spmdx.memory_allocated() == before
        assert x.shape == (1 << 20, 1 << 10)


def test_the_accelerator_tells_the_same():
    torch.spmdx.synchronize()
    stats = torch.spmdx.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.spmdx.memory_allocated()
    assert stats["allocated_bytes.all.peak"] == torch.spmdx.max_memory_allocated()
    assert stats["reserved_bytes.all.current"] > 0
    if torch.accelerator.current_accelerator().type == "spmdx":
        assert torch.accelerator.memory_allocated() == torch.spmdx.memory_allocated()
        assert torch.accelerator.max_memory_allocated() == torch.spmdx.max_memory_allocated()


@pytest.mark.parametrize("name", CUDA)
def test_arguments_are_checked(name):
    asked = getattr(torch.spmdx, name)
    assert type(asked("spmdx:0")) is type(asked())
    with pytest.raises(spmdx.ShardingError, match=f"{name}: the device is 'cpu'. Expected"):
        asked("cpu")
    with pytest.raises(RuntimeError, match="there is one logical spmdx device"):
        asked(1)
