# SPDX-License-Identifier: Apache-2.0
"""Programs that read numbers: which reads run a step, on which thread, and what they see."""

import threading

import pytest
import spmdx
import torch
from hardware import WRONG_INDICES
from spmdx import debug

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


@pytest.fixture
def at_rest():
    spmdx.sync(wait=True)
    debug.reset_counters()


def _count(*names: str) -> tuple[int, ...]:
    counters = debug.counters()
    return tuple(counters[name] for name in names)


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_a_number_is_computed_by_the_thread_that_reads_it(devices, at_rest):
    values = torch.arange(24.0)
    cut = values.to("spmdx")
    if devices > 1:
        mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
        spmdx.mark_sharding(cut, mesh, ("data",))
    spmdx.sync(wait=True)
    debug.reset_counters()
    for factor in range(1, 6):
        assert (cut * factor).sum().item() == (values * factor).sum().item()
    assert _count("steps", "steps_of_readers") == (5, 5)


def test_a_long_step_is_left_to_the_step_thread(at_rest):
    values = torch.ones(1024, 1024)
    on_device = values.to("spmdx")
    assert (on_device + 1).sum().item() == 2 * values.numel()
    assert _count("steps", "steps_of_readers") == (1, 0)
    x = torch.ones(3, device="spmdx")
    for _ in range(1200):
        x = x + 1
    assert x[0].item() == 1201
    assert _count("steps", "steps_of_readers") == (2, 0)


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_who_waits_for_the_end_of_a_brief_step_runs_it(devices, at_rest):
    x = torch.arange(24.0).to("spmdx")
    if devices > 1:
        spmdx.mark_sharding(x, spmdx.Mesh(range(devices), (devices,), ("data",)), ("data",))
    for end in (lambda: spmdx.sync(wait=True), torch.accelerator.synchronize):
        x = x * 2
        end()
    assert _count("steps", "steps_of_readers", "implicit_syncs") == (2, 2, 0)
    x = x + 1
    spmdx.sync()
    assert torch.equal(x.cpu(), torch.arange(24.0) * 4 + 1)
    assert _count("steps", "steps_of_readers") == (3, 2)


def test_a_computed_value_is_read_without_a_step(at_rest):
    known = torch.arange(12.0).reshape(3, 4).to("spmdx")
    spmdx.sync(wait=True)
    debug.reset_counters()
    pending = known + 1
    assert known[1, 2].item() == 6
    assert known.sum(1).shape == (3,)
    assert torch.equal(known.cpu(), torch.arange(12.0).reshape(3, 4))
    assert torch.equal(known.t()[1:, ::2].cpu(), torch.arange(12.0).reshape(3, 4).t()[1:, ::2])
    assert known[:, 1].tolist() == [1, 5, 9]
    assert _count("steps", "implicit_syncs") == (0, 0)
    assert torch.equal(pending.cpu(), torch.arange(12.0).reshape(3, 4) + 1)
    assert _count("implicit_syncs") == (1,)


def test_views_show_what_was_written_last(at_rest):
    known = torch.zeros(4, device="spmdx")
    row = known[2:]
    assert row.tolist() == [0, 0]
    known.add_(1)
    assert row.tolist() == [1, 1]
    row.mul_(3)
    assert known.tolist() == [1, 1, 3, 3]
    assert torch.view_as_real(torch.ones(2, dtype=torch.complex64, device="spmdx"))[0].tolist() == [
        1,
        0,
    ]
    turned = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.equal(turned.to("spmdx")[1, 2].cpu(), turned[1, 2])
    assert torch.ones(3, dtype=torch.complex64, device="spmdx").mul(1j).conj()[1].item() == -1j


def test_overwriting_takes_memory_also_on_the_thread_that_reads(at_rest):
    state = torch.zeros(8, device="spmdx")
    total = 0.0
    for step in range(5):
        state.add_(step)
        total += step
        assert state.sum().item() == 8 * total
    assert _count("steps", "steps_of_readers") == (5, 5)


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_an_error_of_a_step_on_the_reading_thread_comes_out_there(at_rest):
    x = torch.ones(4, device="spmdx")
    spmdx.sync(wait=True)
    x.add_(1)
    index = torch.tensor([9]).to("spmdx")
    with pytest.raises((IndexError, RuntimeError), match="test_numbers_read"):
        x.index_select(0, index).sum().item()
    assert (x * 2).sum().item() == 16  # it was overwritten before the error
    assert _count("steps_of_readers")[0] >= 1


def test_reads_of_many_threads_see_their_own_numbers(at_rest):
    found: dict[int, list[float]] = {}

    def read(thread: int) -> None:
        x = torch.full((5,), float(thread), device="spmdx")
        found[thread] = [(x + i).sum().item() for i in range(20)]

    threads = [threading.Thread(target=read, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {t: [5.0 * (t + i) for i in range(20)] for t in range(4)}


def test_transforms_of_torch_func_leave_the_run_to_the_step_thread(at_rest):
    x = torch.arange(4.0).to("spmdx")
    other = torch.arange(4.0).to("spmdx")

    def loss(value):
        assert (other + 1).sum().item() == 10
        return (value * value).sum()

    assert torch.func.grad(loss)(x).tolist() == [0, 2, 4, 6]
    assert torch.equal(
        torch.func.vmap(lambda row: row * (other + 2).sum().item())(x).cpu(), torch.arange(4.0) * 14
    )


def test_an_annotation_that_asks_for_a_move_is_met_at_the_next_step(at_rest):
    mesh = spmdx.Mesh(range(2), (2,), ("data",))
    kept = [torch.ones(4, device="spmdx") for _ in range(3)]
    spmdx.sync(wait=True)
    spmdx.mark_sharding(kept[1], mesh, ("data",))
    debug.reset_counters()
    assert (kept[0] + 1).sum().item() == 8
    assert kept[1].local_shards[0].data.tolist() == [1, 1]
    kept[1].copy_(torch.full((4,), 3.0))
    assert (kept[0] + 1).sum().item() == 8
    assert kept[1].local_shards[0].data.tolist() == [3, 3]
    assert _count("implicit_syncs") == (2,)  # the shards were there


@pytest.mark.on_the_cpu("the setting is one of the CPU")
def test_kernels_heed_what_the_program_set_for_its_thread(at_rest):
    torch.manual_seed(5)
    whole, tiny = torch.randn(1 << 20), torch.full((1 << 20,), 2e-38)
    parts = [x.to("spmdx") for x in (tiny[:2], whole, tiny)]
    before = torch.get_num_threads()
    sums = set()
    try:
        for count in (1, 2, 3, 5):
            torch.set_num_threads(count)
            for flush in (True, False):
                assert torch.set_flush_denormal(flush)
                spmdx.sync(wait=True)
                debug.reset_counters()
                found = [(x * 0.1).sum().item() for x in parts]
                assert _count("steps", "steps_of_readers") == (3, 1)
                assert found[1] == (whole * 0.1).sum().item()
                if count == 1:  # PyTorch's further threads go on as they began
                    assert [value == 0 for value in (found[0], found[2])] == [flush, flush]
                sums.add(found[1])
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)
    assert len(sums) > 1  # so threads do make a difference
