# SPDX-License-Identifier: Apache-2.0
"""torch.spmdx.memory_allocated and its like tell what one device holds, now and at most."""

import gc

import pytest
import spmdx
import torch

pytestmark = pytest.mark.on_the_cpu("the bytes are those of its allocator, which rounds up")

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


def held():
    """What is held when no step is being traced."""
    gc.collect()
    spmdx.sync(wait=True)
    return torch.spmdx.memory_allocated()


@pytest.fixture(scope="module", autouse=True)
def numbers():
    """Numbers of the program's text are uploaded once, and kept."""
    x = torch.ones(2, device="spmdx", requires_grad=True)
    optimizer = torch.optim.Adam([x])
    for _ in range(3):
        ((x * 2).exp() + 1).sum().backward()
        optimizer.step()
        spmdx.mark_step()
    y = torch.ones(2, device="spmdx", dtype=torch.int64).add_(1)
    spmdx.sync(wait=True)
    assert y.tolist() == [2, 2]


@pytest.mark.parametrize("rows", [24, 25])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_tensor_counts_with_its_largest_shard(size, rows):
    before = held()
    whole = torch.ones(rows, 5).to("spmdx")
    assert torch.spmdx.memory_allocated() - before == rows * 5 * 4
    cut = spmdx.mark_sharding(torch.ones(rows, 5).to("spmdx") * 2, mesh_of(size), ("x", None))
    spmdx.mark_step()
    largest = -(-rows // size)
    assert torch.spmdx.memory_allocated() - before == rows * 5 * 4 + largest * 5 * 4
    assert spmdx.debug.local_bytes(cut) == largest * 5 * 4
    del whole
    assert held() - before == largest * 5 * 4
    del cut
    assert held() == before


@pytest.mark.parametrize("size", [1, 4, 8])
def test_a_training_state_is_what_local_bytes_says(size):
    train(size)  # uploads numbers that it writes
    before = held()
    model, optimizer = train(size)
    on_the_host = [state["step"] for state in optimizer.state.values()]
    assert {step.device.type for step in on_the_host} == {"cpu"}
    assert held() - before == spmdx.debug.local_bytes([model, optimizer]) - 4 * len(on_the_host)


def train(size):
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
    return model, optimizer


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_peak_is_what_a_step_was_measured_to_hold(size):
    x = spmdx.mark_sharding(torch.ones(480, 640).to("spmdx"), mesh_of(size), ("x", None))
    weights = torch.ones(640, 512).to("spmdx")
    spmdx.sync(wait=True)
    x_bytes, y_bytes = (480 // size * columns * 4 for columns in (640, 512))
    spmdx._C.set_checks(memory=True)
    before = held()
    torch.spmdx.reset_peak_memory_stats()
    assert torch.spmdx.max_memory_allocated() == before
    y = (x @ weights).exp().sum()
    spmdx.sync(wait=True)
    outside = before - x_bytes - 640 * 512 * 4
    measured = max(spmdx.explain().memory.measured)
    assert measured >= x_bytes + 640 * 512 * 4 + y_bytes
    assert torch.spmdx.max_memory_allocated() == outside + measured
    assert torch.spmdx.memory_allocated() < torch.spmdx.max_memory_allocated()
    assert y.item() > 0


def test_the_peak_stays_until_it_is_reset():
    before = held()
    torch.spmdx.reset_peak_memory_stats()
    big = torch.ones(1000).to("spmdx")
    del big
    assert torch.spmdx.memory_allocated() == before + 4000  # the step being traced may read it
    assert held() == before
    assert torch.spmdx.max_memory_allocated() == before + 4000
    torch.spmdx.reset_max_memory_allocated()
    assert torch.spmdx.max_memory_allocated() == before


def test_what_overwrites_its_input_counts_once():
    x = torch.ones(1000).to("spmdx")
    x.add_(1)
    before = held()
    for _ in range(3):
        x.add_(1)
        spmdx.mark_step()
    assert torch.spmdx.memory_allocated() == before
    assert x[0].item() == 5


def test_steps_that_are_only_planned_hold_nothing():
    before = torch.spmdx.memory_allocated()
    with spmdx.plan_only():
        x = torch.ones(1 << 20, 1 << 10, device="spmdx") * 2
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
