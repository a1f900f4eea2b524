# SPDX-License-Identifier: Apache-2.0
"""Prefetching goes ahead as far as asked, ends with the loop, and hands on what loaders raise."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest
import spmdx
import torch
from messages import eight_devices
from spmdx.data import ShardingSpec, device_loader
from torch.utils.data import DataLoader, Dataset

eight_devices()


def spec():
    return ShardingSpec(spmdx.Mesh(range(4), (4,), ("data",)), ("data",))


def threads():
    return [t for t in threading.enumerate() if t.name == "spmdx-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_stays():
    gc.collect()
    assert threads() == []
    yield
    gc.collect()
    assert threads() == []


class Counted:
    """Gives ``count`` tensors and notes how many were asked for."""

    def __init__(self, count, fail_at=None):
        self.count, self.fail_at, self.fetched = count, fail_at, 0

    def __iter__(self):
        for i in range(self.count):
            if i == self.fail_at:
                self.raise_here()
            self.fetched += 1
            yield torch.full((4,), float(i))

    def raise_here(self):
        raise KeyError("no such record")


def wait_until(holds, seconds=10.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.005)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_as_many_batches_as_asked_are_fetched_ahead(size):
    source = Counted(20)
    batches = iter(device_loader(source, input_sharding=spec(), prefetch_size=size))
    for taken in range(1, 4):
        next(batches)
        wait_until(lambda taken=taken: source.fetched == taken + size)
        time.sleep(0.02)
        assert source.fetched == taken + size


def test_without_prefetch_nothing_is_fetched_ahead_and_no_thread_runs():
    source = Counted(20)
    batches = iter(device_loader(source, input_sharding=spec(), prefetch_size=0))
    assert next(batches)[0].item() == 0 and source.fetched == 1 and threads() == []


def test_fetching_goes_on_while_the_loop_works():
    together = threading.Barrier(2, timeout=10)

    def source():
        yield torch.zeros(4)
        together.wait()  # passes only if the loop is at work on the first meanwhile
        yield torch.ones(4)

    seen = []
    for x in device_loader(source(), input_sharding=spec()):
        if not seen:
            together.wait()
        seen.append(x.sum().item())
    assert seen == [0, 4]


@pytest.mark.parametrize("fail_at", [0, 1, 4])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_what_the_loader_raises_comes_at_its_batch_with_its_traceback(fail_at, size):
    seen = []
    with pytest.raises(KeyError, match="no such record") as caught:
        for x in device_loader(Counted(9, fail_at), input_sharding=spec(), prefetch_size=size):
            seen.append(x[0].item())
    assert seen == list(range(fail_at))
    assert "raise_here" in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]


def test_leaving_the_loop_ends_the_thread():
    for x in device_loader(Counted(9), input_sharding=spec()):
        if x[0].item() == 2:
            break
    assert threads() == []
    with pytest.raises(ZeroDivisionError):
        for x in device_loader(Counted(9), input_sharding=spec()):
            x = 1 / 0
    batches = iter(device_loader(Counted(9), input_sharding=spec()))
    next(batches)
    wait_until(lambda: len(threads()) == 1)
    del batches
    assert threads() == []


def test_an_iterator_in_a_cycle_is_collected():
    cycle = [iter(device_loader(Counted(9), input_sharding=spec()))]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert threads() == []


def test_a_loop_that_ended_stays_ended():
    batches = iter(device_loader(Counted(2), input_sharding=spec()))
    assert len(list(batches)) == 2 and list(batches) == []


def test_loops_within_each_other_do_not_meet():
    loader = device_loader([torch.full((4,), float(i)) for i in range(3)], input_sharding=spec())
    seen = [(x[0].item(), y[0].item()) for x in loader for y in loader]
    assert seen == [(i, j) for i in range(3) for j in range(3)]


class Squares(Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, i):
        if i < 0:
            raise IndexError(i)
        return torch.full((2,), float(i * i))


class Failing(Squares):
    def __getitem__(self, i):
        if i == 7:
            raise ValueError("record 7 is damaged")
        return super().__getitem__(i)


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_processes_work_and_end(persistent):
    plain = DataLoader(Squares(), batch_size=4, num_workers=2, persistent_workers=persistent)
    loader = device_loader(plain, input_sharding=spec())
    for _ in range(2):
        got = torch.cat([x.cpu() for x in loader])
        assert torch.equal(got, torch.stack([Squares()[i] for i in range(11)]))
    first = next(iter(loader))
    assert torch.equal(next(iter(loader)).cpu(), first.cpu())


def test_a_newer_loop_over_workers_that_stay_ends_the_older():
    plain = DataLoader(Squares(), batch_size=4, num_workers=1, persistent_workers=True)
    loader = device_loader(plain, input_sharding=spec())
    older = iter(loader)
    next(older)
    assert len(list(loader)) == 3
    with pytest.raises(RuntimeError, match="a newer loop"):
        next(older)


def test_errors_in_worker_processes_surface():
    loader = DataLoader(Failing(), batch_size=4, num_workers=1)
    seen = []
    with pytest.raises(ValueError, match="record 7 is damaged"):
        for x in device_loader(loader, input_sharding=spec()):
            seen.append(len(x))
    assert seen == [4]


def test_pinned_batches_work():
    loader = DataLoader(Squares(), batch_size=4, pin_memory=True)
    got = torch.cat([x.cpu() for x in device_loader(loader, input_sharding=spec())])
    assert torch.equal(got, torch.stack([Squares()[i] for i in range(11)]))


def test_a_sampler_draws_where_it_draws_in_a_plain_loop():
    def run(wrap):
        torch.manual_seed(3)
        seen = []
        loader = wrap(DataLoader(Squares(), batch_size=3, shuffle=True))
        for _ in range(2):
            for x in loader:
                seen.append((x[:, 0].tolist(), torch.rand(()).item()))
        return seen

    want = run(lambda loader: loader)
    assert run(lambda loader: device_loader(loader, input_sharding=spec())) == want


EXITS = {
    "in the loop": "next(batches)",
    "by an error": "next(batches)\n1 / 0",
    "while a batch is fetched": "next(batches)\ntime.sleep(0.05)",
    "within the loop": "for x in batches:\n    sys.exit(0)",
}


@pytest.mark.parametrize("how, workers", [*((how, 0) for how in EXITS), ("within the loop", 1)])
def test_a_program_that_stops_amid_an_epoch_exits(how, workers):
    body = f"""
        import sys, time, torch, spmdx
        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 100
            def __getitem__(self, i):
                time.sleep(0.02)
                return torch.ones(4)
        if __name__ == "__main__":
            loader = torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers={workers})
            batches = iter(spmdx.data.device_loader(loader, prefetch_size=3))
    """
    script = textwrap.dedent(body) + textwrap.indent(EXITS[how], " " * 4)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SPMDX_NUM_DEVICES": "2"},
    )
    assert done.returncode == (1 if "error" in how else 0), done.stderr
    assert ("ZeroDivisionError" in done.stderr) if "error" in how else done.stderr == ""
